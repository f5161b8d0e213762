// ops/cuda/quant/atom_kernel.cuh -- the streamed GEMM (linear/stream.h) of packed weights: the same
// tiles, cuts and outputs, with operands converted in registers.
#pragma once
#include "base/check.h"
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/linear/stream_share.cuh"
#include "ops/cuda/linear/stream_store.cuh"
#include "ops/cuda/quant/atom_kernels.h"
#include "ops/cuda/quant/atom_load.cuh"
#include "ops/cuda/quant/atom_multiply.cuh"

namespace skiff::cuda::atoms {

// What the warps that multiply do with their slices.
template <class Ring, bool kGated, bool kZeros>
struct AtomConsumer {
  static constexpr int kMostRows = Ring::kRows, kTiles = Ring::kTiles;

  const StreamArgs& a;
  const AtomArgs& q;
  const Ring& ring;
  LineStaging lines;
  RingTurn<Ring::kStages> turn = {};
  float sum[kTiles][kMostRows / 2];  // all sizes of jobs share these registers

  // Takes a slice of a job of up to N rows.
  template <int N>
  __device__ void take(const AtomMultiplier<Ring, N, kGated, kZeros>& multiplier,
                       const TileSlice& s) {
    multiplier.run(sum, s, turn);
    SharedTile<N, kMostRows, kTiles> shared = {a};
    const bool cut = (kTiles == 1 || kMostRows <= kMostCutPair) && s.is_cut(a);
    if (cut) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) shared.leave(first_of<N / 2>(sum[t]), s, t);
      if (!shared.arrives_last(s)) return;
    }
    Epilogue<N, kGated, (kMostRows >= kFewestLines)> store = {a, &lines};
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (cut) shared.total(first_of<N / 2>(sum[t]), s, t);
      store.store_tile(first_of<N / 2>(sum[t]), slice_of_tile<Ring>(s, t));
    }
  }
  // The next smaller number of rows for which a job has a main loop of its own; 0: none. From 32
  // rows on rows are summed in one order, whatever their number, and fewer in another. Where many
  // rows have groups with scales, their sums leave no registers for several loops. A wgmma costs
  // the same with 8 to 24 columns.
  static constexpr int fewer(int rows) {
    constexpr bool kFast = are_fast(Ring::kCodes, Ring::kGroups, kTiles);
    if (rows <= 24) return kFast ? 0 : rows - 8;
    if (rows == 32 || Ring::kGroups > 0) return 0;
    if (rows == 64 && kMostRows == 64 && kFast) return 48;
    return rows == 48 ? 32 : rows / 2;
  }
  // Takes a slice of a job of up to N rows by the fewest columns of the tensor cores that hold
  // them, if there are so few: an expert's last job need not cost as much as the others.
  template <int N>
  __device__ bool take_few(const TileSlice& s) {
    if constexpr (N == 0) {
      return false;
    } else {
      if (s.job.rows > N) return false;
      if (take_few<fewer(N)>(s)) return true;
      take<N>(AtomMultiplier<Ring, N, kGated, kZeros>(q, ring), s);
      return true;
    }
  }

  __device__ void run(ClaimQueue& queue) {
    SliceWalk<kMostRows, Walker::kWarps> slices(a, queue);
    const AtomMultiplier<Ring, kMostRows, kGated, kZeros> multiplier(q, ring);
    for (TileSlice s; slices.next(&s);)
      if (!take_few<fewer(kMostRows)>(s)) take<kMostRows>(multiplier, s);
  }
};

// kTiles: 2 where StreamArgs::tiles counts pairs of tiles.
template <Codes kCodes, int kGroups, int N, bool kGated, int kBlocks, bool kZeros, int kTiles>
__global__ void __launch_bounds__(atom_threads(N), kBlocks)
    atom_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a,
                const __grid_constant__ AtomArgs q) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using Ring = AtomRing<kCodes, kGroups, N, kBlocks, kTiles>;
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
    if constexpr (N >= 64) more_registers<kMultiplierRegisters<1>>();
    wait_for_previous();
    AtomConsumer<Ring, kGated, kZeros>{a, q, ring, LineStaging(memory + Ring::kRingBytes)}.run(
        queue);
  } else {
    if constexpr (N >= 64) fewer_registers<kLoaderRegisters<1>>();
    if (warp == kConsumers / 32 && elected())
      load_weights<N>(a, queue, ring, AtomCopy<Ring, kGated>{a, q});
    else if (warp == kConsumers / 32 + 1 && elected())
      load_rows<N>(a, queue, ring, XCopy<Ring, N>{x_map, a, q});
  }
#endif
}

// Calls f(kernel, what it is for, bytes of shared memory) for each kernel of a kind.
template <Codes kCodes, int kGroups, class F>
void for_each_atom_kernel(F f) {
  const auto with_zeros = [&]<int N, int kBlocks, bool kZeros, int kTiles>() {
    const size_t bytes = AtomRing<kCodes, kGroups, N, kBlocks, kTiles>::kSharedBytes;
    f(atom_kernel<kCodes, kGroups, N, false, kBlocks, kZeros, kTiles>,
      AtomKind{N, false, kBlocks, kZeros, kTiles}, bytes);
    f(atom_kernel<kCodes, kGroups, N, true, kBlocks, kZeros, kTiles>,
      AtomKind{N, true, kBlocks, kZeros, kTiles}, bytes);
  };
  const auto of_blocks = [&]<int N, int kBlocks, int kTiles = 1>() {
    with_zeros.template operator()<N, kBlocks, false, kTiles>();
    if constexpr (kCodes == Codes::kFour)
      with_zeros.template operator()<N, kBlocks, true, kTiles>();
  };
  const auto with = [&]<int N>() {
    of_blocks.template operator()<N, 1>();
    if constexpr (constexpr int kMost = most_blocks(kCodes, N, 1); kMost > 1)
      of_blocks.template operator()<N, kMost>();
    if constexpr (takes_pairs(kGroups))
      of_blocks.template operator()<N, most_blocks(kCodes, N, 2), 2>();
  };
  with.template operator()<8>();
  with.template operator()<16>();
  if constexpr (kCodes != Codes::kFloat8Held) with.template operator()<24>();
  with.template operator()<32>();
  with.template operator()<64>();
  with.template operator()<128>();
}

template <Codes kCodes, int kGroups>
void allow_atom_kernels() {
  for_each_atom_kernel<kCodes, kGroups>([](auto kernel, const AtomKind&, size_t bytes) {
    allow_shared(kernel, bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
          "asking for shared memory");
  });
}

template <Codes kCodes, int kGroups>
void start_atoms_of(const AtomLaunch& l, const CUtensorMap& x, const streamed::StreamArgs& args,
                    const AtomArgs& atoms) {
  bool started = false;
  for_each_atom_kernel<kCodes, kGroups>([&](auto kernel, const AtomKind& kind, size_t bytes) {
    if (kind != l.kind) return;
    const unsigned blocks = l.multiprocessors * static_cast<unsigned>(kind.blocks);
    launch(kernel, {blocks, atom_threads(kind.rows), bytes, l.stream}, x, args, atoms);
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for jobs of {} rows and {} tiles", l.kind.rows, l.kind.tiles);
}

}  // namespace skiff::cuda::atoms
