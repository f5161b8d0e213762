// weights/format.h -- how the numbers of weights, KV cache and activations are stored, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tensor/tensor.h"

namespace skiff {

// How activations are rounded before they meet a quantized weight: to `dtype` (kI8 or kF8E4M3),
// each divided by a scale of its row, so that results do not depend on other rows. Divisions are
// true ones; quotients are rounded to nearest even and clipped to [-128, 127] or [-448, 448].
struct InputFormat {
  enum Scales : uint8_t {
    kToken,   // one scale for each row: max|x| / 127 or / 448; 1 for a row of zeros
    kGroups,  // one for each 128 columns of the weight, from max|x| of at least 1e-4
    kStatic,  // one for all rows, from the checkpoint: Linear::input_scale
  };
  DType dtype = DType::kI8;
  Scales scales = kToken;

  static constexpr int kGroup = 128;         // elements that share a scale under kGroups
  static constexpr float kLeastMax = 1e-4f;  // the smallest max|x| under kGroups

  bool operator==(const InputFormat&) const = default;
};

// The elements of a weight [out, in], and the scales and zero points that give them their values.
// One scale (and zero point) is shared by each block of block_out x block_in elements; 0 stands for
// the whole of that dimension, and blocks at the edges may be partial. So scales and zero points
// are matrices [ceil(out / block_out), ceil(in / block_in)]. Where `zero` is an integer dtype,
// values are scale * (element - zero); where it is a float, scale * element - zero, as in formats
// that store a block's minimum. A format without a scale holds values as they are. Scales are
// widened to float32 before they multiply.
struct WeightFormat {
  DType dtype = DType::kF32;
  int block_out = 0, block_in = 0;
  std::optional<DType> scale, zero;
  std::optional<InputFormat> input;  // without it, activations stay floats

  bool quantized() const { return scale.has_value(); }
  bool operator==(const WeightFormat&) const = default;
};

// The number of blocks that `size` elements are cut into; a block of 0 is all of them.
inline int64_t num_blocks(int64_t size, int block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}
// Returns whether a format has a meaning: plain float32 or bfloat16, or elements of at most eight
// bits with scales of 16 or 32. Only integers have zero points, and none beside rounded
// activations.
bool has_meaning(const WeightFormat& format);

// Words for messages: "bfloat16", or "int8 with a float32 scale for each 1 x 128".
std::string describe(const WeightFormat& format);

// The elements of the KV cache: floats as they are, or kI8, kF8E4M3 or kU4 with a scale for each
// token, KV head and group of `group` elements of the head (0: the whole head), for keys and values
// apart, and with a zero point beside each scale where `zero` is set: scale * (element - zero),
// rounded to bf16 (ops/kv_quant.h). With `fixed`, scales are those of the checkpoint, one for each
// KV head, and none are stored.
struct KvFormat {
  DType dtype = DType::kF32;
  int group = 0;
  bool zero = false;
  bool fixed = false;

  bool quantized() const {
    return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kU4;
  }
  bool operator==(const KvFormat&) const = default;
};

// What a model computes with. Routers, norms and the residual stream are float32 whatever it says.
struct Precision {
  WeightFormat weights;
  DType act = DType::kF32;  // activations: kF32 or kBF16
  KvFormat kv;

  bool operator==(const Precision&) const = default;
};

// Weights, activations and KV cache in one floating-point dtype.
inline Precision uniform_precision(DType dtype) {
  return {.weights = {.dtype = dtype}, .act = dtype, .kv = {.dtype = dtype}};
}

}  // namespace skiff
