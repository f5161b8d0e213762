// ops/cuda/attention/args.h -- batches and caches as plain pointers, the form in which kernels get
// them.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// A RaggedBatch.
struct Rows {
  const int32_t *row_start, *positions, *kv_len, *pages;
  int64_t pages_stride;  // elements from one sequence's page numbers to the next
  int num_seqs, num_tokens;
};

// The elements of a cache (ops/kv_quant.h).
enum class KvElement : uint8_t { kF32, kBf16, kI8, kE4M3, kU4 };
constexpr bool is_quantized(KvElement e) { return e > KvElement::kBf16; }
constexpr int element_bits(KvElement e) {
  return e == KvElement::kF32 ? 32 : e == KvElement::kBf16 ? 16 : e == KvElement::kU4 ? 4 : 8;
}

template <KvElement kElement>  // for device code
constexpr int kElementBits = element_bits(kElement);

constexpr int kKvGroup = 32;  // elements of a head that share a scale and a zero point in kU4

// A KvLayer: [page, position, kv head, dim], and the bf16 scales of what is quantized,
// [page, kv head, position, scale], each followed by its zero point in kU4; or, fixed, [kv head].
struct CacheArgs {
  void *k, *v;
  int64_t k_page, v_page;  // elements from one page to the next
  int page_size, kv_heads, head_dim;
  KvElement element;
  uint16_t *k_scale = nullptr, *v_scale = nullptr;
  int64_t k_scale_page = 0, v_scale_page = 0;  // elements from one page to the next
  int scales = 0;  // numbers for one head of one position; 0: fixed, or not quantized
};

}  // namespace skiff::cuda
