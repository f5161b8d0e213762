// ops/cuda/mla/args_of.h -- from the tensor of a latent cache to the kernels' arguments.
#pragma once
#include "base/check.h"
#include "ops/batch.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/mla/attend_kernels.h"

namespace skiff::cuda {

inline LatentCache latent_cache_of(const KvLayer& kv, const Mla& spec) {
  SKIFF_CHECK_EQ(kv.k.dim[2], 1);
  SKIFF_CHECK_EQ(kv.k.dim[3], spec.cached_dim());
  return {.data = kv.k.data,
          .page_stride = kv.k.row_stride,
          .page_size = kv.page_size,
          .bf16 = is_bf16(kv.k)};
}

}  // namespace skiff::cuda
