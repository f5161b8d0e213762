// Decodes in pieces over a cache of bf16: each row gets the bits that the prefill kernel gives it.
// Blocks are persistent. One warp is the TMA producer, and four share each tile.
#include "ops/cuda/attention/decode_padding.cuh"
#include "ops/cuda/attention/invariant_copy.cuh"
#include "ops/cuda/attention/invariant_fold.cuh"

namespace skiff::cuda {
namespace decode {
namespace {

template <class S>
__device__ void attend_runs(const DecodeArgs& d, InvariantShared<S>& shared) {
  SlotRing<S::kSlots> ring;
  Rows16<S> rows;
  bool last = false;
  for (int number = 0; !last; ++number) {
    barrier_wait(shared_address(&shared.full[ring.slot]), ring.phase);
    const Run& run = shared.runs[number % S::kRuns];
    last = run.last;
    begin_run(d, run, rows);
    int index = KeyTile<S>::first_of(run), pieces = 0;  // pieces that have ended
    for (KeyTile<S> tile(run, index); tile.any();) {
      attend_tile<S>(d, run, tile, ring, rows, shared);
      ring = ring.after(2 * tile.halves());
      tile = KeyTile<S>(run, ++index);
      if (!tile.any() || begins_piece(index * S::kHalves, d.piece))
        end_piece(d, run, pieces++, rows, shared);
    }
    end_run(d, run, rows, shared);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    invariant_kernel(const __grid_constant__ DecodeArgs d, const __grid_constant__ CUtensorMap k,
                     const __grid_constant__ CUtensorMap v) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // Attention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<InvariantShared<S>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kSlots; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), S::kWarps);
    }
    barrier_init_done();
    prefetch_map(&k);
    prefetch_map(&v);
  }
  __syncthreads();
  // Plan and page table were written before the last kernel that triggers its dependents after its
  // own wait, so they are visible here.
  TileWalk<true> walk(d);
  if (threadIdx.x >= S::kComputing) {
    Run run;
    if (walk.next(run)) copy_runs<S>(d, walk, run, k, v, shared);
    return;
  }
  wait_for_previous();
  let_next_start();
  if (walk.any()) attend_runs<S>(d, shared);
  clear_padding<S>(d);
#endif
}

template <class S>
void start(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v, cudaStream_t stream) {
  const int per_processor = decode_blocks_per_processor(S::kDim);
  const Launch how = {.grid = dim3(static_cast<unsigned>(d.blocks * S::kBlocks / per_processor)),
                      .block = dim3(S::kThreads),
                      .shared = sizeof(InvariantShared<S>),
                      .stream = stream};
  allow_shared(invariant_kernel<S>, how.shared);
  launch(invariant_kernel<S>, how, d, k, v);
}

template <int kDim>
void start_for(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
               cudaStream_t stream) {
  // Depends on what a graph fixes: the number of sequences, not their lengths.
  const bool few = 4 * d.args.rows.num_seqs * d.args.cache.kv_heads <= d.blocks;
  if constexpr (kDim < 256) {
    if (few) return start<Invariant<kDim, true>>(d, k, v, stream);
  }
  start<Invariant<kDim, false>>(d, k, v, stream);
}

}  // namespace
}  // namespace decode

void start_invariant_decode(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
                            cudaStream_t stream) {
  if (d.args.head_dim == 64) decode::start_for<64>(d, k, v, stream);
  if (d.args.head_dim == 128) decode::start_for<128>(d, k, v, stream);
  if (d.args.head_dim == 256) decode::start_for<256>(d, k, v, stream);
}

}  // namespace skiff::cuda
