// Copies of a quantized cache's pages as bf16 values.
#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/quantized_chunks.cuh"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

// Where a page of the copy comes from.
struct Source {
  int64_t page;  // its number in the cache
  int32_t* entry;
};

__device__ Source source_of(const WidenArgs& p, int page) {
  int s = 0;
  while (s + 1 < p.count && p.span[s + 1].at <= page) ++s;
  const WidenSpan& span = p.span[s];
  const int64_t at = span.seq * p.rows.pages_stride + span.first + page - span.at;
  return {p.rows.pages[at], p.table + at};
}

// A block copies the keys or the values of a page.
template <KvElement kElement>
__global__ void __launch_bounds__(kThreads) widen_kernel(const __grid_constant__ WidenArgs p) {
  constexpr int kElements = 128 / kElementBits<kElement>;  // in a chunk
  wait_for_previous();
  let_next_start();
  const CacheArgs& c = p.cache;
  const int page = static_cast<int>(blockIdx.x), chunks = c.head_dim / kElements;
  const bool keys = blockIdx.y == 0;
  const Source from = source_of(p, page);
  if (keys && threadIdx.x == 0) *from.entry = page;
  auto* to = static_cast<uint4*>(keys ? p.k : p.v) +
             static_cast<int64_t>(page) * c.page_size * p.heads * c.head_dim / 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < c.page_size * p.heads * chunks; i += kThreads) {
    const int chunk = i % chunks, head = i / chunks % p.heads, position = i / chunks / p.heads;
    const HeadCache<kElement> cache(c, p.first_head + head, keys ? c.k : c.v,
                                    keys ? c.k_scale : c.v_scale, keys ? c.k_page : c.v_page,
                                    keys ? c.k_scale_page : c.v_scale_page);
    const Chunk x = load_chunk(cache, from.page, position, chunk);
    widen<kElement>(x, [&](int piece, const uint4& bytes) {
      to[static_cast<int64_t>(i) * (kElements / 8) + piece] = bytes;
    });
  }
}

}  // namespace

void start_widen(const WidenArgs& p, cudaStream_t stream) {
  const Launch how = {
      .grid = dim3(static_cast<unsigned>(p.pages), 2), .block = dim3(kThreads), .stream = stream};
  switch (p.cache.element) {
    case KvElement::kI8:
      return launch(widen_kernel<KvElement::kI8>, how, p);
    case KvElement::kE4M3:
      return launch(widen_kernel<KvElement::kE4M3>, how, p);
    default:
      return launch(widen_kernel<KvElement::kU4>, how, p);
  }
}

}  // namespace skiff::cuda
