// weights/format.h -- how the numbers of weights, KV cache and activations are stored, as data.
#pragma once
#include <optional>
#include <string>

#include "tensor/tensor.h"

namespace skiff {

// The elements of a weight [out, in], and the scales and zero points that give them their values:
// scale * (element - zero). One scale (and zero point) is shared by each block of block_out x
// block_in elements; 0 stands for the whole of that dimension, and blocks at the edges may be
// partial. So scales and zero points are matrices [ceil(out / block_out), ceil(in / block_in)]. A
// format without a scale holds values as they are.
struct WeightFormat {
  DType dtype = DType::kF32;
  int block_out = 0, block_in = 0;
  std::optional<DType> scale, zero;

  bool quantized() const { return scale.has_value(); }
  bool operator==(const WeightFormat&) const = default;
};

// Words for messages: "bfloat16", or "int8 with a float32 scale for each 1 x 128".
std::string describe(const WeightFormat& format);

// The elements of the KV cache.
struct KvFormat {
  DType dtype = DType::kF32;

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
