// ops/cuda/mla/args_of.h -- from the tensor of a latent cache to the kernels' arguments.
#pragma once
#include "base/check.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/mla/attend_kernels.h"
#include "ops/latent_row.h"

namespace skiff::cuda {

inline LatentElement latent_element(const KvLayer& kv) {
  if (kv.format.quantized()) return LatentElement::kRow;
  return is_bf16(kv.k) ? LatentElement::kBF16 : LatentElement::kF32;
}

inline LatentCache latent_cache_of(const KvLayer& kv, const Mla& spec) {
  const LatentElement element = latent_element(kv);
  const LatentRow row = {spec.kv_rank, spec.rope_dim};
  const auto width = static_cast<int64_t>(bytes(kv.k.dtype));
  SKIFF_CHECK_EQ(kv.k.dim[2], 1);
  SKIFF_CHECK_EQ(kv.k.dim[3], element == LatentElement::kRow ? row.bytes() : spec.cached_dim());
  SKIFF_CHECK((kv.k.dtype == DType::kU8) == (element == LatentElement::kRow), "a cache of {}",
              name(kv.k.dtype));
  return {.data = static_cast<std::byte*>(kv.k.data),
          .page_bytes = kv.k.row_stride * width,
          .page_size = kv.page_size,
          .vector_bytes = static_cast<int>(kv.k.dim[3] * width),
          .element = element,
          .scales_at = row.scales_at(),
          .rope_at = row.rope_at()};
}

}  // namespace skiff::cuda
