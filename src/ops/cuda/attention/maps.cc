#include "ops/cuda/attention/maps.h"

#include <algorithm>

#include "ops/cuda/hopper/tensor_map.h"

namespace skiff::cuda {
namespace {

CUtensorMap map_of(void* data, int64_t page_stride, const CacheArgs& c, int64_t pages) {
  const int bits = element_bits(c.element);
  // A head's columns: bf16 numbers, or bytes of quantized elements.
  const auto dim =
      static_cast<uint64_t>(is_quantized(c.element) ? c.head_dim * bits / 8 : c.head_dim);
  const auto heads = static_cast<uint64_t>(c.kv_heads);
  const auto head = static_cast<uint64_t>(c.head_dim * bits / 8);
  const uint64_t size[] = {dim, heads, static_cast<uint64_t>(c.page_size),
                           static_cast<uint64_t>(pages)};
  const uint64_t stride[] = {head, head * heads, static_cast<uint64_t>(page_stride * bits / 8)};
  const auto rows = static_cast<uint32_t>(std::min(c.page_size, 64));
  if (!is_quantized(c.element)) {
    const uint32_t box[] = {64, 1, rows, 1};
    return tensor_map(data, size, stride, box);
  }
  const uint32_t box[] = {static_cast<uint32_t>(std::min<uint64_t>(dim, 128)), 1, rows, 1};
  return byte_map(data, size, stride, box);
}

}  // namespace

CacheMaps cache_maps(const CacheArgs& c, int64_t pages) {
  return {map_of(c.k, c.k_page, c, pages), map_of(c.v, c.v_page, c, pages)};
}

}  // namespace skiff::cuda
