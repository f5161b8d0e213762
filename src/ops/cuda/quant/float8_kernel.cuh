// ops/cuda/quant/float8_kernel.cuh -- the streamed GEMM (linear/stream.h) of e4m3 weights that lie
// row by row: the same tiles, cuts and outputs.
#pragma once
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/linear/stream_share.cuh"
#include "ops/cuda/linear/stream_store.cuh"
#include "ops/cuda/quant/float8_codes_store.cuh"
#include "ops/cuda/quant/float8_load.cuh"
#include "ops/cuda/quant/float8_multiply.cuh"
#include "ops/cuda/quant/float8_store.cuh"

namespace skiff::cuda::float8 {

// What the warps that multiply do with their slices.
template <class Ring, bool kGated, bool kRounds>
struct Float8Consumer {
  static constexpr int kMostRows = Ring::kRows, kTiles = Ring::kTiles;

  const StreamArgs& a;
  const Float8Args& q;
  const Ring& ring;
  char* staging;
  LineStaging lines;
  RingTurn<Ring::kStages> turn = {};
  float sum[kTiles * kMostRows / 2];  // all sizes of jobs share these registers

  // Takes a slice of a job of up to N rows.
  template <int N>
  __device__ void take(const TileSlice& s) {
    auto& parts = reinterpret_cast<float(&)[kTiles][N / 2]>(sum);
    Float8Multiplier<Ring, N, kGated>(a, q, ring).run(parts, s, turn);
    if constexpr (kTiles == 1) {
      if (s.is_cut(a) && !complete<N>(parts[0], s)) return;
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      TileSlice tile = s;
      tile.tile = s.tile * kTiles + t;
      if constexpr (rows_lead(N))
        RowsEpilogue<kGated>(a, staging).store_tile(parts[t], tile);
      else
        Epilogue<N, kGated, (kMostRows >= kFewestLines)>{a, &lines}.store_tile(parts[t], tile);
    }
  }

  // Takes a slice of a job of up to 128 rows, whose outputs leave as codes.
  __device__ void take_rounded(const TileSlice& s) {
    auto& parts = reinterpret_cast<float(&)[kTiles][kMostRows / 2]>(sum);
    const Float8Multiplier<Ring, kMostRows, kGated> multiplier(a, q, ring);
    if (static_cast<int>(threadIdx.x / 128) * 64 >= s.job.rows) return multiplier.pass(s, turn);
    multiplier.run(parts, s, turn);
    CodesEpilogue(a, q, staging).store_pair(parts, s);
  }

  // Leaves the slice of a tile that several blocks share. Returns whether `part` has all of it now.
  template <int N>
  __device__ bool complete(float (&part)[N / 2], TileSlice s) {
    if constexpr (rows_lead(N)) s.job.rows = N;  // SharedTile leaves out what lies beyond the rows
    return SharedTile<N, kMostRows>{a}.add(part, s);
  }

  // An expert's last job may have few rows, for which the tensor cores need not work as for many.
  __device__ void run(ClaimQueue& queue) {
    SliceWalk<kMostRows, Walker::kWarps> slices(a, queue);
    for (TileSlice s; slices.next(&s);) {
      if constexpr (kRounds)
        take_rounded(s);
      else if constexpr (kMostRows < 128)
        take<kMostRows>(s);
      else if (s.job.rows <= kMostRows / 4)
        take<kMostRows / 4>(s);
      else if (s.job.rows <= kMostRows / 2)
        take<kMostRows / 2>(s);
      else
        take<kMostRows>(s);
    }
  }
};

// kTiles: 2 where StreamArgs::tiles counts pairs of tiles, none of which is cut. kRounds: outputs
// of gated pairs leave as codes.
template <int N, bool kGated, int kTiles, bool kRounds>
__global__ void __launch_bounds__(kFloat8Threads, 1)
    float8_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a,
                  const __grid_constant__ Float8Args q) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using Ring = Float8Ring<N, kTiles>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  __shared__ ClaimQueue queue;
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 2);
      barrier_init(ring.empty + 8 * i, kConsumers / 32);
    }
    queue.init(1 + kConsumers / 32);
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < kConsumers / 32) {
    if constexpr (N >= 64) more_registers<kMultiplierRegisters>();
    wait_for_previous();
    char* staging = memory + Ring::kRingBytes;
    Float8Consumer<Ring, kGated, kRounds>{a, q, ring, staging, LineStaging(staging)}.run(queue);
  } else {
    if constexpr (N >= 64) fewer_registers<kLoaderRegisters>();
    if (warp == kConsumers / 32 && elected())
      load_weights<N>(a, queue, ring, Float8Weights<Ring, kGated>{w_map, a});
    else if (warp == kConsumers / 32 + 1 && elected())
      load_rows<N>(a, queue, ring, Float8X<Ring>{x_map, a, q});
  }
#endif
}

}  // namespace skiff::cuda::float8
