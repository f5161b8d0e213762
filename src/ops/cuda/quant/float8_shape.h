// ops/cuda/quant/float8_shape.h -- the memory of a weight in float8_rows.h or float8_channels.h.
// Pure functions without CUDA.
#pragma once
#include <cstddef>
#include <cstdint>

#include "weights/format.h"

namespace skiff::cuda {

// Describes the sizes of such a weight, whose columns are a multiple of 128. A stack's matrices,
// and their scales, follow each other.
struct Float8Rows {
  static constexpr int kBlock = 128;
  int64_t experts = 0, out = 0, in = 0;  // experts: 0 where there is one matrix

  constexpr int64_t matrices() const { return experts > 0 ? experts : 1; }

  // Floats from one row of scales to the next: a multiple of four, as cuBLASLt has it.
  constexpr int64_t scale_stride() const { return (in / kBlock + 3) / 4 * 4; }
  // Rows of scales of a matrix.
  constexpr int64_t scale_rows() const { return (out + kBlock - 1) / kBlock; }
};

// Returns whether a weight of this format and shape is kept row by row. A stack's rows are a
// multiple of 256, so that a gated product takes it whichever it is.
bool keeps_float8_rows(const WeightFormat& format, int64_t experts, int64_t out, int64_t in);

// Where the parts of the Buffer lie that prepare_float8_rows(), or prepare_float8_channels(),
// makes, in bytes; `end` is its size.
struct Float8Places {
  size_t scales = 0, bias = 0, end = 0;
};
Float8Places float8_places(const Float8Rows& rows, bool bias);
inline size_t float8_rows_bytes(const Float8Rows& rows, bool bias) {
  return float8_places(rows, bias).end;
}

// Describes a weight with a scale for each output, whose columns are a multiple of 128.
struct Float8Channels {
  int64_t out = 0, in = 0;

  // Scales are padded with zeros: kernels read those of whole tiles.
  constexpr int64_t scales() const { return (out + 127) / 128 * 128; }
};

// Returns whether a weight of this format and shape is kept so. Stacks of experts are not.
bool keeps_float8_channels(const WeightFormat& format, int64_t experts, int64_t out, int64_t in);
Float8Places float8_places(const Float8Channels& channels, bool bias);

}  // namespace skiff::cuda
