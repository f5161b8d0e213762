// ops/cuda/mla/rows_values.cuh -- the two warpgroups that multiply values by weights, over 8-bit
// rows: each has half of the rank. Values are the operand in registers, with columns as its rows: a
// transposing load gives a thread two positions of two neighbouring columns, which become a pair of
// positions of each column. Values and weights are f16, relative to the largest scale and to the
// largest score that are known (rows_known.cuh).
#pragma once
#include "ops/cuda/float8_half.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers_half.cuh"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_loads.cuh"
#include "ops/cuda/mla/rows_results.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/mla/rows_sums.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Multiplies earlier sums by the factors of their vectors and of their groups.
template <class Tiles>
__device__ __forceinline__ void rescale(ColumnSums<Tiles>& o, const float* of_vector,
                                        const float* of_group) {
  const int lane = thread_of<Tiles>() % 32;
#pragma unroll
  for (int j = 0; j < Tiles::kVectors / 8; ++j) {
    const auto keep = *reinterpret_cast<const float2*>(of_vector + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int block = 0; block < kHalfPanels; ++block) {
      const float x = keep.x * of_group[block / 2], y = keep.y * of_group[block / 2];
      o[block][4 * j] *= x, o[block][4 * j + 1] *= y;
      o[block][4 * j + 2] *= x, o[block][4 * j + 3] *= y;
    }
  }
}

// Values are multiplied in pieces of 64 columns (a warp has 16 of them) and 32 positions: the first
// 32 positions of all columns, then the others, so that the half of a tile is free early.
constexpr int kPieces = 2 * kHalfPanels;

// Loads pieces from `first` on.
template <int kLoads>
__device__ __forceinline__ void load_pieces(uint32_t (&raw)[kLoads][4], uint32_t at, int first) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int half = (first + i) / kHalfPanels, block = (first + i) % kHalfPanels;
    load_matrices_transposed(raw[i], at + static_cast<uint32_t>(block * 64 + half * kHalfBytes));
  }
}
// Where a thread's first piece lies.
template <class Tiles>
__device__ __forceinline__ uint32_t first_piece(const RowsShared<Tiles>& shared, int rows,
                                                int which) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  return shared_address(shared.rows[rows]) +
         static_cast<uint32_t>(lane * kRowBytes + which * kHalf + warp * 16);
}

// Makes the operand of a step of half of a load. scales: those of its two pairs of positions.
__device__ __forceinline__ void widen_positions(uint32_t (&a)[4], uint32_t first, uint32_t second,
                                                uint2 scales) {
  first = __byte_perm(first, 0, 0x3120), second = __byte_perm(second, 0, 0x3120);
  a[0] = mul_half(first_codes(first), scales.x), a[1] = mul_half(last_codes(first), scales.x);
  a[2] = mul_half(first_codes(second), scales.y), a[3] = mul_half(last_codes(second), scales.y);
}

// o (+)= values * weights, of this half of a tile. Two sets of operands take turns. `raw` has the
// first pieces. `after_half` is called once a half of the tile has been read, while products are
// computed.
template <class Tiles, class AfterHalf>
__device__ __forceinline__ void multiply_values(ColumnSums<Tiles>& o, int which,
                                                RowsShared<Tiles>& shared, int rows, int stage,
                                                bool add, uint32_t (&raw)[Tiles::kLoads][4],
                                                const AfterHalf& after_half) {
  constexpr int kLoads = Tiles::kLoads, kSets = kPieces / kLoads;
  const uint32_t at = first_piece(shared, rows, which);
  const uint64_t weights = wgmma_operand(shared_address(shared.p[stage]));
  uint32_t a[2][Tiles::kSteps][4];
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    uint32_t(&mine)[Tiles::kSteps][4] = a[set % 2];
    const int half = set * kLoads / kHalfPanels, first = set * kLoads % kHalfPanels;
    const uint4 x = *reinterpret_cast<const uint4*>(
        &shared.scales[stage][which * kGroupsOfHalf + first / 2][thread_of<Tiles>() % 4][half * 4]);
    if (set > 1) {
      wgmma_wait<1>();
      settle(mine);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      widen_positions(mine[2 * i], raw[i][0], raw[i][1], {x.x, x.y});
      widen_positions(mine[2 * i + 1], raw[i][2], raw[i][3], {x.z, x.w});
    }
    if (set + 1 < kSets) load_pieces<kLoads>(raw, at, (set + 1) * kLoads);
    if (set + 1 == kSets / 2) warp_arrives<Tiles>(shared.done[rows][0]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int step = 0; step < 2; ++step)
        wgmma_held_half<Tiles::kVectors>(o[first + i], mine[2 * i + step],
                                         weights + (half * 2 + step) * kWgmmaStep,
                                         half > 0 || step > 0 || add);
    }
    wgmma_commit();
    if (set == kSets / 2) after_half(0);
  }
  warp_arrives<Tiles>(shared.done[rows][1]);
  after_half(1);
  wgmma_wait<0>();
#pragma unroll
  for (int block = 0; block < kHalfPanels; ++block) settle(o[block]);
  settle(a[0]);
  settle(a[1]);
}

// The tiles of a block, which has `total`. The first warps of both halves ask for tiles of rows.
template <class Tiles>
__device__ __forceinline__ void rows_values(const LatentPlanArgs& p, int which,
                                            RowsShared<Tiles>& shared, int total) {
  // Two rings of one length are one, for want of registers.
  constexpr bool kSame = Tiles::kStages == Tiles::kPlaces;
  ColumnSums<Tiles> o;
  Ring<Tiles::kStages> rows;
  Ring<Tiles::kPlaces> other;
  const bool asks = of_warp(static_cast<int>(threadIdx.x) / 32) % kWarpsOfGroup == 0;
  int next = Tiles::kStages;  // the tile to ask for
  bool any = total > 0;
  for (int turn = 0; any; turn = turn + 1 == Tiles::kTurns ? 0 : turn + 1) {
    int tiles = 1;
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const int of_rows = rows.stage, stage = kSame ? rows.stage : other.stage;
      uint32_t raw[Tiles::kLoads][4];
      barrier_wait(shared_address(&shared.full[of_rows]), rows.phase);
      barrier_wait(shared_address(&shared.p_full[stage]), kSame ? rows.phase : other.phase);
      load_pieces(raw, first_piece(shared, of_rows, which), 0);
      if (tile == 0) {
        tiles = of_warp(shared.runs[turn].tiles);
      } else if (shared.grown[stage]) [[unlikely]] {
        rescale<Tiles>(o, shared.keep[stage], shared.keep_group[stage] + which * kGroupsOfHalf);
        sum *= shared.keep[stage][thread_of<Tiles>() / kSharers<Tiles>];
      }
      sum += sum_weights<Tiles>(shared.p[stage], which);
      multiply_values(o, which, shared, of_rows, stage, tile > 0, raw, [&](int half) {
        if (asks && which == half && next < total)
          next_half(p, shared, next, of_rows, rows.phase, half);
      });
      ++next;
      warp_arrives<Tiles>(shared.p_done[stage]);
      rows.advance();
      if (!kSame) other.advance();
    }
    sum = sum_of_sharers<Tiles>(sum);
    // Two places take turns: a warp may be at the next run's end while others read these.
    const int place = turn % 2;
    shared.sum[place][which][thread_of<Tiles>() / kSharers<Tiles>] = sum;
    named_sync(kBothValuesBarrier, 2 * kGroupThreads);
    any = of_warp(shared.runs[turn].last) == 0;
    end_rows_run(p, shared.runs[turn], which, turn, place, shared, o);
  }
}

}  // namespace skiff::cuda::latent
