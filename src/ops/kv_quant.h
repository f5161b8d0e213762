// ops/kv_quant.h -- how keys and values become the elements and scales of a quantized cache, and
// which values these stand for: the same elements and scales on every backend.
//
// Scales and zero points are bf16. An element's value is scale * (element - zero), rounded to bf16:
// the product needs at most 16 bits, so it is rounded once however it is computed, and attention
// over a quantized cache is attention over a bf16 cache with these values. A backend's kernel may
// leave the rounding out for kI8 and kF8E4M3, for all keys and values that it reads.
//
// With amax the largest magnitude of a head, or, with zero points, [low, high] the range of a
// group and of zero, all in float32 with true divisions and rounding to nearest even:
//   kI8      scale amax / 127; elements x / scale, from -127 to 127
//   kF8E4M3  scale amax / 448; elements x / scale as e4m3, from -448 to 448
//   kU4      scale (high - low) / 15, zero -low / scale as an integer from 0 to 15; elements
//            x / scale as an integer, plus zero, from 0 to 15
// Scales are clipped to [2^-64, 2^64], those of e4m3 to [2^-64, 2^7], and rounded to bf16 before
// anything is divided by them; fixed ones must lie in these ranges. What is not a number is stored
// as the lowest element.
#pragma once
#include <span>
#include <string>

#include "ops/batch.h"
#include "tensor/convert.h"

namespace skiff {

// Returns the format of a cache with elements of that dtype whose scales follow its values.
KvFormat kv_format(DType dtype);

// Words for messages: "bfloat16", "int8", "int8 with fixed scales".
std::string describe(const KvFormat& format);

// Returns how many bf16 numbers are stored for one head of one token: its scales, each followed by
// its zero point if it has one; 0 where scales are fixed or the cache is not quantized.
int kv_scales(const KvFormat& format, int head_dim);

// One head of one token in a quantized cache, keys or values.
struct KvHead {
  std::byte* elements = nullptr;
  BF16* scales = nullptr;
};
// Finds it in `pages` and `scales`, KvLayer's k and k_scale or v and v_scale.
KvHead kv_head(const Tensor& pages, const Tensor& scales, const KvFormat& format, int64_t page,
               int64_t in_page, int64_t head);

// Fixed scales are read; others are written.
void quantize(const KvFormat& format, std::span<const float> x, const KvHead& to);
void dequantize(const KvFormat& format, const KvHead& from, std::span<float> x);

}  // namespace skiff
