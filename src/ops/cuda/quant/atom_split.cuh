// ops/cuda/quant/atom_split.cuh -- the GEMM of packed weights by 17 to some hundred rows whose
// tiles are too few for all multiprocessors: the blocks of a cluster share the inner dimension of a
// tile, and their sums meet in shared memory. Stream-K (atom_kernel.cuh) leaves them in device
// memory, and one block reads what all others of its tile have left.
#pragma once
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/linear/stream_store.cuh"
#include "ops/cuda/quant/atom_load.cuh"
#include "ops/cuda/quant/atom_multiply.cuh"
#include "ops/cuda/quant/atom_splits.h"

namespace skiff::cuda::atoms {

// Teams of a block. Sums of more rows leave no registers for twice as many threads.
constexpr int teams_of_split(int rows, int tiles) { return rows <= 64 ? tiles : 1; }
template <Codes kCodes, int N, int kTiles>
using SplitRing = AtomRing<kCodes, 0, N, 1, kTiles, teams_of_split(N, kTiles)>;

constexpr int kMeetingRows = 8;  // rows of x of a tile whose sums a block adds up at a time

// The only slice of a block: its cluster's tiles of the rows of one job, and its part of the
// chunks.
template <int N>
__device__ __forceinline__ TileSlice slice_of_block(const StreamArgs& a, int splits) {
  const int at = static_cast<int>(blockIdx.x) / splits, rank = block_rank();
  TileSlice s = {};
  s.job = job_of<N>(a, at / a.tiles);
  s.tile = at % a.tiles;
  s.begin = a.chunks * rank / splits;
  s.end = a.chunks * (rank + 1) / splits;
  return s;
}

// The sums of a block's warps, [tiles][N / 8][kConsumers], in the memory of its ring.
template <int N>
struct MeetingPlace {
  static constexpr int kPieces = N / 8;

  float4* memory;

  __device__ float4* piece(int tile, int j) const {
    return memory + (tile * kPieces + j) * kConsumers + threadIdx.x % kConsumers;
  }
  __device__ void leave(const float (&sum)[N / 2], int tile) const {
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
      *piece(tile, j) = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
  }
  // The sums of all blocks for a piece, kMeetingRows rows, in the order of their chunks. All are on
  // their way before the first is added.
  __device__ void total(float (&all)[kMeetingRows / 2], int tile, int j, int splits) const {
    float4 v[kMostSplits];
#pragma unroll
    for (int b = 0; b < kMostSplits; ++b)
      if (b < splits) v[b] = of_peer(*piece(tile, j), b);
#pragma unroll
    for (float& sum : all) sum = 0;
#pragma unroll
    for (int b = 0; b < kMostSplits; ++b) {
      if (b >= splits) break;
      all[0] += v[b].x, all[1] += v[b].y, all[2] += v[b].z, all[3] += v[b].w;
    }
  }
};

template <class Ring, bool kGated>
struct SplitConsumer {
  static constexpr int N = Ring::kRows, kTiles = Ring::kTiles, kTeamTiles = Ring::kTeamTiles;
  static_assert(N % kMeetingRows == 0 && N * kTiles * 512 <= Ring::kRingBytes);

  const StreamArgs& a;
  const AtomArgs& q;
  const Ring& ring;
  char* memory;  // where the ring lies
  float sum[kTeamTiles][N / 2];

  // Multiplies, and leaves the sums where the cluster meets.
  __device__ void multiply(const TileSlice& s) {
    RingTurn<Ring::kStages> turn;
    AtomMultiplier<Ring, N, kGated, false>(q, ring).run(sum, s, turn);
    named_sync(kRingBarrier, Ring::kMultipliers);  // all have read what lies in the ring
#pragma unroll
    for (int t = 0; t < kTeamTiles; ++t) place().leave(sum[t], place_of_tile<Ring>(t));
  }
  // Stores the outputs that are this team's to add up: the teams of all blocks take turns with
  // pieces of rows of each tile.
  __device__ void store(const TileSlice& s, int splits) {
    Epilogue<kMeetingRows, kGated, false> epilogue = {a, nullptr};
    const int pieces = kTiles * ((s.job.rows + kMeetingRows - 1) / kMeetingRows);
#pragma unroll 1
    for (int i = team<Ring>() * splits + block_rank(); i < pieces; i += Ring::kTeams * splits) {
      const int t = i % kTiles, row = i / kTiles * kMeetingRows;
      TileSlice part = s;
      part.job.first += row;
      part.job.rows = min(kMeetingRows, s.job.rows - row);
      float all[kMeetingRows / 2];
      place().total(all, t, row / kMeetingRows, splits);
      epilogue.store_tile(all, slice_of_tile<Ring>(part, t));
    }
  }

 private:
  static constexpr int kRingBarrier = 1;

  __device__ MeetingPlace<N> place() const { return {reinterpret_cast<float4*>(memory)}; }
};

template <Codes kCodes, int N, bool kGated, int kTiles>
__global__ void __launch_bounds__(atom_threads(N, teams_of_split(N, kTiles)), 1)
    split_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a,
                 const __grid_constant__ AtomArgs q, int splits) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
  using Ring = SplitRing<kCodes, N, kTiles>;
  constexpr int kTeams = Ring::kTeams;
  constexpr int kWarps = Ring::kMultipliers / 32;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 2);
      barrier_init(ring.empty + 8 * i, kWarps);
    }
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const TileSlice s = slice_of_block<N>(a, splits);
  if (warp < kWarps) {
    if constexpr (N >= 64) more_registers<kMultiplierRegisters<kTeams>>();
    wait_for_previous();
    SplitConsumer<Ring, kGated> consumer = {a, q, ring, memory};
    consumer.multiply(s);
    cluster_sync();
    consumer.store(s, splits);
  } else {
    if constexpr (N >= 64) fewer_registers<kLoaderRegisters<kTeams>>();
    RingFiller<Ring> fill = {ring};
    if (warp == kWarps && elected()) {
      if (a.next_at_once) let_next_start();
      const AtomCopy<Ring, kGated> copy = {a, q};
      for (int c = s.begin; c < s.end; ++c) copy(ring, s, c, fill.next());
    } else if (warp == kWarps + 1 && elected()) {
      wait_for_previous();
      const XCopy<Ring, N> copy = {x_map, a, q};
      for (int c = s.begin; c < s.end; ++c) copy(ring, s, c, fill.next());
    }
    __syncwarp();
    cluster_sync();
  }
  cluster_sync();  // nobody leaves before all have read its sums
#endif
}

// Calls f(kernel, what it is for, bytes of shared memory) for each kernel of a kind.
template <Codes kCodes, class F>
void for_each_split_kernel(F f) {
  const auto of = [&]<int N, bool kGated, int kTiles>() {
    f(split_kernel<kCodes, N, kGated, kTiles>, SplitKind{N, kGated, kTiles},
      SplitRing<kCodes, N, kTiles>::kSharedBytes);
  };
  const auto with = [&]<int N>() {
    of.template operator()<N, false, 1>(), of.template operator()<N, true, 1>();
    of.template operator()<N, false, 2>(), of.template operator()<N, true, 2>();
  };
  with.template operator()<32>(), with.template operator()<64>(), with.template operator()<128>();
}

template <Codes kCodes>
void allow_split_kernels() {
  for_each_split_kernel<kCodes>(
      [](auto kernel, const SplitKind&, size_t bytes) { allow_shared(kernel, bytes); });
}

template <Codes kCodes>
void start_split_of(const SplitLaunch& l, const CUtensorMap& x, const streamed::StreamArgs& args,
                    const AtomArgs& atoms) {
  bool started = false;
  for_each_split_kernel<kCodes>([&](auto kernel, const SplitKind& kind, size_t bytes) {
    if (kind != l.kind) return;
    const Launch how = {.grid = l.blocks,
                        .block = static_cast<unsigned>(
                            atom_threads(kind.rows, teams_of_split(kind.rows, kind.tiles))),
                        .shared = bytes,
                        .stream = l.stream,
                        .cluster = static_cast<unsigned>(l.splits)};
    launch(kernel, how, x, args, atoms, l.splits);
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for jobs of {} rows and {} tiles", l.kind.rows, l.kind.tiles);
}

}  // namespace skiff::cuda::atoms
