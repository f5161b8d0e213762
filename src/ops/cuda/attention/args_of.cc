#include "ops/cuda/attention/args_of.h"

namespace skiff::cuda {

Rows rows_of(const RaggedBatch& b) {
  return {b.row_start.as<int32_t>(),
          b.positions.as<int32_t>(),
          b.kv_len.as<int32_t>(),
          b.pages.as<int32_t>(),
          b.pages.row_stride,
          b.num_seqs,
          b.num_tokens};
}

CacheArgs cache_of(const KvLayer& kv) {
  SKIFF_CHECK(kv.k.dtype == kv.v.dtype);
  for (const Tensor& t : {kv.k, kv.v})
    SKIFF_CHECK(
        (reinterpret_cast<uintptr_t>(t.data) | static_cast<size_t>(t.row_stride) * bytes(t.dtype)) %
                16 ==
            0,
        "pages do not begin on 16 bytes");
  return {.k = kv.k.data,
          .v = kv.v.data,
          .k_page = kv.k.row_stride,
          .v_page = kv.v.row_stride,
          .page_size = kv.page_size,
          .kv_heads = static_cast<int>(kv.k.dim[2]),
          .head_dim = static_cast<int>(kv.k.dim[3]),
          .bf16 = is_bf16(kv.k)};
}

bool is_bf16(const Tensor& t) {
  SKIFF_CHECK(t.dtype == DType::kBF16 || t.dtype == DType::kF32, "dtype is {}", name(t.dtype));
  return t.dtype == DType::kBF16;
}

void check_head_dim(const Gqa& spec) {
  SKIFF_CHECK(spec.head_dim % 2 == 0 && spec.head_dim <= 256,
              "head_dim is {}; the CUDA backend takes even ones up to 256", spec.head_dim);
}

}  // namespace skiff::cuda
