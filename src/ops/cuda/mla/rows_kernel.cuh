// ops/cuda/mla/rows_kernel.cuh -- latent attention on Hopper over a cache of 8-bit rows: bf16
// queries, rank 512, rope 64. A block has up to 16, 32 or 64 query vectors and walks over its tiles
// as attend_kernel.cuh says; the handovers between warpgroups are as there.
//
// Products have positions, and columns of values, as the 64 rows of wgmma, and vectors as its
// columns: so few vectors are not padded to 64, and what is converted is the operand that may lie
// in registers. No converted tile is written to memory; the warpgroups that multiply keys and those
// that multiply values each convert a tile for themselves, all four at once.
#pragma once
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/mla/rows_loads.cuh"
#include "ops/cuda/mla/rows_values.cuh"
#include "ops/cuda/mla/rows_weights.cuh"

namespace skiff::cuda::latent {

template <class Tiles>
__device__ __forceinline__ void rows_scores_group(const LatentPlanArgs& p, int which,
                                                  RowsShared<Tiles>& shared) {
  fewer_registers<Tiles::kScoresRegisters>();
  read_ahead(p);
  wait_for_previous();
  let_next_start();
  rows_scores(p, which, shared);
  if (which == 0) clear_padding(p);
}

template <class Tiles>
__device__ __forceinline__ void rows_values_group(const LatentPlanArgs& p, int which,
                                                  RowsShared<Tiles>& shared) {
  more_registers<Tiles::kValuesRegisters>();
  if (threadIdx.x % kGroupThreads < 32) first_halves(p, shared, which);
  wait_for_previous();
  let_next_start();
  rows_values(p, which, shared, of_warp(tiles_of_block(p)));
}

// All of a block, which has kRowsGroups * kGroupThreads threads. The two warpgroups of a kind run
// the same instructions, for more code than two kinds' would not stay in the instruction cache.
template <class Tiles>
__device__ __forceinline__ void rows_block(const LatentPlanArgs& p, uint8_t* memory) {
  auto& shared = *reinterpret_cast<RowsShared<Tiles>*>(memory);
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  const int group = of_warp(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (group < 2)
    rows_scores_group(p, group, shared);
  else
    rows_values_group(p, group - 2, shared);
}

}  // namespace skiff::cuda::latent
