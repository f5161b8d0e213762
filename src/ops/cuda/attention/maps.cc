#include "ops/cuda/attention/maps.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

// The driver is asked for its function at run time, so that nothing links to it.
decltype(&cuTensorMapEncodeTiled) encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) {
    throw DeviceError("the CUDA driver has no cuTensorMapEncodeTiled; update it to 12.0 or later");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

CUtensorMap map_of(void* data, int64_t page_stride, const CacheArgs& c, int64_t pages) {
  static const auto encode = encoder();
  const auto dim = static_cast<cuuint64_t>(c.head_dim);
  const auto heads = static_cast<cuuint64_t>(c.kv_heads);
  const cuuint64_t size[4] = {dim, heads, static_cast<cuuint64_t>(c.page_size),
                              static_cast<cuuint64_t>(pages)};
  const cuuint64_t stride[3] = {2 * dim, 2 * dim * heads, 2 * static_cast<cuuint64_t>(page_stride)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(std::min(c.page_size, 64)), 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, size, stride, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  SKIFF_CHECK(result == CUDA_SUCCESS, "no tensor map for a cache of {} pages of {} x {} x {}: {}",
              pages, c.page_size, c.kv_heads, c.head_dim, static_cast<int>(result));
  return map;
}

}  // namespace

CacheMaps cache_maps(const CacheArgs& c, int64_t pages) {
  return {map_of(c.k, c.k_page, c, pages), map_of(c.v, c.v_page, c, pages)};
}

}  // namespace skiff::cuda
