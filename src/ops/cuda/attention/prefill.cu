// Prefills over a cache of bf16, which TMA copies.
#include "ops/cuda/attention/prefill_kernel.cuh"

namespace skiff::cuda {
namespace {

using namespace prefill;

// The TMA producer, run by a whole warp without divergence; lane i knows the page of the i-th box.
template <int kDim, bool kPieces>
__device__ void copy_tiles(const PrefillArgs& p, const Work& work, const CUtensorMap& k,
                           const CUtensorMap& v, Shared<kDim, kPieces>& shared) {
  constexpr int kBytes = kKeys<kDim> * kDim * 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_size = p.args.cache.page_size, page_shift = p.args.page_shift;
  const int box = min(page_size, kTile), boxes = kKeys<kDim> / box;
  const int32_t* pages = p.args.rows.pages + work.tile.seq * p.args.rows.pages_stride;
  // Boxes that no row sees get page -1, outside of the cache, so TMA fills them with zeros.
  const auto look_up = [&](int tile) {
    const int t = tile * kKeys<kDim> + lane * box;
    const bool any = t < work.tile.kv_len && t + box > work.seen;
    return any && lane < boxes ? pages[t >> page_shift] : -1;
  };
  const auto copy = [&](const CUtensorMap& map, uint32_t to, uint32_t full, uint32_t empty,
                        uint32_t phase, int tile, int page) {
    barrier_wait(empty, phase ^ 1);
    if (elected()) barrier_expect(full, kBytes);
    for (int b = 0; b < boxes; ++b) {
      const int from = __shfl_sync(kAllLanes, page, b);
      const int in_page = (tile * kKeys<kDim> + b * box) & (page_size - 1);
      if (elected()) {
#pragma unroll
        for (int c = 0; c < kDim / 64; ++c) {
          copy_box(to + (c * kKeys<kDim> + b * box) * 128, &map, full, c * 64, work.head, in_page,
                   from);
        }
      }
      __syncwarp();
    }
  };
  Ring<kStages<kDim, kPieces>> k_ring, v_ring;
  const auto copy_keys = [&](int tile, int page) {
    const int i = k_ring.stage;
    copy(k, shared_address(shared.k[i]), shared_address(&shared.k_full[i]),
         shared_address(&shared.k_empty[i]), k_ring.phase, tile, page);
    k_ring.advance();
  };
  const auto copy_values = [&](int tile, int page) {
    const int i = v_ring.stage;
    copy(v, shared_address(shared.v[i]), shared_address(&shared.v_full[i]),
         shared_address(&shared.v_empty[i]), v_ring.phase, tile, page);
    v_ring.advance();
  };
  // Loads follow the order of use: keys are one tile ahead of values.
  int page = look_up(work.first), next = look_up(work.first + 1);
  copy_keys(work.first, page);
  for (int tile = work.first; tile < work.end; ++tile) {
    const int after = look_up(tile + 2);
    if (tile + 1 < work.end) copy_keys(tile + 1, next);
    copy_values(tile, page);
    page = next;
    next = after;
  }
}

template <int kDim, bool kPieces>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArgs p, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // Attention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kDim, kPieces>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kDim, kPieces>; ++i) {
      barrier_init(shared_address(&shared.k_full[i]), 1);
      barrier_init(shared_address(&shared.v_full[i]), 1);
      barrier_init(shared_address(&shared.k_empty[i]), kGroups);
      barrier_init(shared_address(&shared.v_empty[i]), kGroups);
    }
    barrier_init_done();
    prefetch_map(&k);
    prefetch_map(&v);
  }
  __syncthreads();
  if (!p.beside) wait_for_previous();
  let_next_start();
  // The shuffle shows the compiler that the value is the same in all threads of a warp.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < kGroups * kGroupThreads + 32) {
      copy_tiles<kDim, kPieces>(p, Work(p, kKeys<kDim>), k, v, shared);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    attend<kDim, true, kPieces>(p, Work(p, kKeys<kDim>), group, shared);
  }
  if (p.beside) wait_for_previous();
#endif
}

template <int kDim, bool kPieces>
void start_with(const PrefillArgs& p, const CUtensorMap& k, const CUtensorMap& v,
                cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.count * p.args.cache.kv_heads)),
                      .block = dim3(kThreads),
                      .shared = sizeof(Shared<kDim, kPieces>),
                      .stream = stream};
  allow_shared(prefill_kernel<kDim, kPieces>, how.shared);
  launch(prefill_kernel<kDim, kPieces>, how, p, k, v);
}

template <int kDim>
void start(const PrefillArgs& p, const CUtensorMap& k, const CUtensorMap& v, cudaStream_t stream) {
  if (p.piece > 0)
    start_with<kDim, true>(p, k, v, stream);
  else
    start_with<kDim, false>(p, k, v, stream);
}

}  // namespace

void start_prefill(const PrefillArgs& p, const CUtensorMap& k, const CUtensorMap& v,
                   cudaStream_t stream) {
  if (p.args.head_dim == 64) start<64>(p, k, v, stream);
  if (p.args.head_dim == 128) start<128>(p, k, v, stream);
  if (p.args.head_dim == 256) start<256>(p, k, v, stream);
}

}  // namespace skiff::cuda
