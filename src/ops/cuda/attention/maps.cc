#include "ops/cuda/attention/maps.h"

#include <algorithm>

#include "ops/cuda/hopper/tensor_map.h"

namespace skiff::cuda {
namespace {

CUtensorMap map_of(void* data, int64_t page_stride, const CacheArgs& c, int64_t pages) {
  const auto dim = static_cast<uint64_t>(c.head_dim), heads = static_cast<uint64_t>(c.kv_heads);
  const uint64_t size[] = {dim, heads, static_cast<uint64_t>(c.page_size),
                           static_cast<uint64_t>(pages)};
  const uint64_t stride[] = {2 * dim, 2 * dim * heads, 2 * static_cast<uint64_t>(page_stride)};
  const uint32_t box[] = {64, 1, static_cast<uint32_t>(std::min(c.page_size, 64)), 1};
  return tensor_map(data, size, stride, box);
}

}  // namespace

CacheMaps cache_maps(const CacheArgs& c, int64_t pages) {
  return {map_of(c.k, c.k_page, c, pages), map_of(c.v, c.v_page, c, pages)};
}

}  // namespace skiff::cuda
