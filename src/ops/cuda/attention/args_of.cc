#include "ops/cuda/attention/args_of.h"

#include "ops/kv_quant.h"

namespace skiff::cuda {

namespace {

KvElement element_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return KvElement::kF32;
    case DType::kBF16:
      return KvElement::kBf16;
    case DType::kI8:
      return KvElement::kI8;
    case DType::kF8E4M3:
      return KvElement::kE4M3;
    default:
      SKIFF_CHECK(dtype == DType::kU4, "a cache of {}", name(dtype));
      return KvElement::kU4;
  }
}

void check_format(const KvLayer& kv) {
  SKIFF_CHECK(kv.format.dtype == kv.k.dtype && kv.format.zero == (kv.k.dtype == DType::kU4));
  SKIFF_CHECK(kv.format.group == (kv.format.zero ? kKvGroup : 0), "groups of {}", kv.format.group);
  for (const Tensor& t : {kv.k_scale, kv.v_scale}) SKIFF_CHECK(t.dtype == DType::kBF16);
}

}  // namespace

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
    SKIFF_CHECK((reinterpret_cast<uintptr_t>(t.data) | byte_size(t.dtype, t.row_stride)) % 16 == 0,
                "pages do not begin on 16 bytes");
  CacheArgs args = {.k = kv.k.data,
                    .v = kv.v.data,
                    .k_page = kv.k.row_stride,
                    .v_page = kv.v.row_stride,
                    .page_size = kv.page_size,
                    .kv_heads = static_cast<int>(kv.k.dim[2]),
                    .head_dim = static_cast<int>(kv.k.dim[3]),
                    .element = element_of(kv.k.dtype)};
  if (!is_quantized(args.element)) return args;
  check_format(kv);
  args.k_scale = static_cast<uint16_t*>(kv.k_scale.data);
  args.v_scale = static_cast<uint16_t*>(kv.v_scale.data);
  args.k_scale_page = kv.k_scale.row_stride;
  args.v_scale_page = kv.v_scale.row_stride;
  args.scales = kv_scales(kv.format, args.head_dim);
  return args;
}

bool is_bf16(const Tensor& t) {
  SKIFF_CHECK(t.dtype == DType::kBF16 || t.dtype == DType::kF32, "dtype is {}", name(t.dtype));
  return t.dtype == DType::kBF16;
}

void check_head_dim(const Gqa& spec) {
  SKIFF_CHECK(spec.head_dim % 2 == 0 && spec.head_dim <= kMaxHeadDim,
              "head_dim is {}; the CUDA backend takes even ones up to {}", spec.head_dim,
              kMaxHeadDim);
}

}  // namespace skiff::cuda
