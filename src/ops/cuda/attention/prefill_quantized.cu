// Prefills over a quantized cache: the warpgroup that would copy tiles converts them to bf16 on
// their way to shared memory.
#include "ops/cuda/attention/prefill_kernel.cuh"
#include "ops/cuda/attention/quantized_chunks.cuh"

namespace skiff::cuda {
namespace {

using namespace prefill;

template <int kDim, KvElement kElement>
struct Convert {
  static constexpr int kRowChunks = kDim * kElementBits<kElement> / 128;
  static constexpr int kChunks = kKeys<kDim> * kRowChunks / kGroupThreads;  // loads of a thread
  static constexpr int kElements = 128 / kElementBits<kElement>;            // elements of a chunk
  static_assert(kKeys<kDim> * kRowChunks % kGroupThreads == 0);
};

// Converts a tile; what no row sees becomes zeros. All threads of the warpgroup call it.
template <int kDim, KvElement kElement>
__device__ void convert_tile(const PrefillArgs& p, const Work& work,
                             const HeadCache<kElement>& from, int tile, uint8_t* to, uint32_t full,
                             uint32_t empty, uint32_t phase) {
  using C = Convert<kDim, kElement>;
  constexpr int kAtOnce = C::kChunks < 8 ? C::kChunks : 8;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int32_t* pages = p.args.rows.pages + work.tile.seq * p.args.rows.pages_stride;
  const auto row_of = [&](int i) { return (thread + i * kGroupThreads) / C::kRowChunks; };
  const int column = thread % C::kRowChunks;
  bool waited = false;
#pragma unroll 1
  for (int first = 0; first < C::kChunks; first += kAtOnce) {
    Chunk chunk[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = tile * kKeys<kDim> + row_of(first + i);
      chunk[i] = {};
      if (t < work.seen || t >= work.tile.kv_len) continue;
      chunk[i] =
          load_chunk(from, pages[t >> p.args.page_shift], t & (p.args.cache.page_size - 1), column);
    }
    if (!waited) barrier_wait(empty, phase ^ 1);
    waited = true;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = row_of(first + i);
      widen<kElement>(chunk[i], [&](int piece, const uint4& bytes) {
        // The place among the row's pieces of 8 bf16 elements, 16 bytes each.
        const int at = column * (C::kElements / 8) + piece;
        *reinterpret_cast<uint4*>(to + (at / 8 * kKeys<kDim> + row) * 128 +
                                  ((at % 8) ^ (row % 8)) * 16) = bytes;
      });
    }
  }
  fence_async();
  barrier_arrive(full);
}

template <int kDim, KvElement kElement>
__device__ void convert_tiles(const PrefillArgs& p, const Work& work, Shared<kDim, false>& shared) {
  const CacheArgs& c = p.args.cache;
  const HeadCache<kElement> keys(c, work.head, c.k, c.k_scale, c.k_page, c.k_scale_page);
  const HeadCache<kElement> values(c, work.head, c.v, c.v_scale, c.v_page, c.v_scale_page);
  Ring<kStages<kDim, false>> k_ring, v_ring;
  const auto convert_keys = [&](int tile) {
    const int i = k_ring.stage;
    convert_tile<kDim>(p, work, keys, tile, shared.k[i], shared_address(&shared.k_full[i]),
                       shared_address(&shared.k_empty[i]), k_ring.phase);
    k_ring.advance();
  };
  // The order is that of use: keys are one tile ahead of values.
  convert_keys(work.first);
  for (int tile = work.first; tile < work.end; ++tile) {
    if (tile + 1 < work.end) convert_keys(tile + 1);
    const int i = v_ring.stage;
    convert_tile<kDim>(p, work, values, tile, shared.v[i], shared_address(&shared.v_full[i]),
                       shared_address(&shared.v_empty[i]), v_ring.phase);
    v_ring.advance();
  }
}

template <int kDim, KvElement kElement>
__global__ void __launch_bounds__(kThreads, 1)
    quantized_prefill_kernel(const __grid_constant__ PrefillArgs p) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // Attention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kDim, false>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kDim, false>; ++i) {
      barrier_init(shared_address(&shared.k_full[i]), kGroupThreads);
      barrier_init(shared_address(&shared.v_full[i]), kGroupThreads);
      barrier_init(shared_address(&shared.k_empty[i]), kGroups);
      barrier_init(shared_address(&shared.v_empty[i]), kGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (!p.beside) wait_for_previous();
  let_next_start();
  // The shuffle shows the compiler that the value is the same in all threads of a warp.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    convert_tiles<kDim, kElement>(p, Work(p, kKeys<kDim>), shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    attend<kDim, false, false>(p, Work(p, kKeys<kDim>), group, shared);
  }
  if (p.beside) wait_for_previous();
#endif
}

template <int kDim, KvElement kElement>
void start(const PrefillArgs& p, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.count * p.args.cache.kv_heads)),
                      .block = dim3(kThreads),
                      .shared = sizeof(Shared<kDim, false>),
                      .stream = stream};
  allow_shared(quantized_prefill_kernel<kDim, kElement>, how.shared);
  launch(quantized_prefill_kernel<kDim, kElement>, how, p);
}

template <KvElement kElement>
void start_for(const PrefillArgs& p, cudaStream_t stream) {
  if (p.args.head_dim == 64) start<64, kElement>(p, stream);
  if (p.args.head_dim == 128) start<128, kElement>(p, stream);
  if (p.args.head_dim == 256) start<256, kElement>(p, stream);
}

}  // namespace

void start_quantized_prefill(const PrefillArgs& p, cudaStream_t stream) {
  switch (p.args.cache.element) {
    case KvElement::kI8:
      return start_for<KvElement::kI8>(p, stream);
    case KvElement::kE4M3:
      return start_for<KvElement::kE4M3>(p, stream);
    default:
      return start_for<KvElement::kU4>(p, stream);
  }
}

}  // namespace skiff::cuda
