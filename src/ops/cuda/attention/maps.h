// ops/cuda/attention/maps.h -- tensor maps (TMA) of the KV cache.
#pragma once
#include <cuda.h>

#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

struct CacheMaps {
  CUtensorMap k, v;
};
// Makes tensor maps of boxes: 128 bytes of one head, or all if it has fewer, at min(page_size, 64)
// positions of one page, in swizzled rows. The cache is bf16 or quantized, head_dim a multiple of
// 64, with `pages` pages.
CacheMaps cache_maps(const CacheArgs& cache, int64_t pages);

}  // namespace skiff::cuda
