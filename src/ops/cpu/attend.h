// ops/cpu/attend.h -- what one call of attention computes, for every mixer that has it, and the
// memory that it allocates, for the memory plan.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "arch/spec.h"
#include "tensor/tensor.h"

namespace skiff::cpu {

// The sizes of attention: `heads` query heads in equal groups, each of which shares a kv head.
struct AttendShape {
  int heads = 0, kv_heads = 0;
  int dim = 0, v_dim = 0;  // elements of a key and of a value
  int window = 0;          // as Gqa::window
  float scale = 1;

  int group() const { return heads / kv_heads; }
};
inline AttendShape shape_of(const Gqa& m) {
  return {.heads = m.heads,
          .kv_heads = m.kv_heads,
          .dim = m.head_dim,
          .v_dim = m.head_dim,
          .window = m.window,
          .scale = 1 / std::sqrt(static_cast<float>(m.head_dim))};
}
inline AttendShape shape_of(const Mla& m) {
  return {
      .heads = m.heads, .kv_heads = 1, .dim = m.cached_dim(), .v_dim = m.kv_rank, .scale = m.scale};
}

// A vector of `dim` elements for each row and head.
struct HeadVectors {
  std::byte* data;
  DType dtype;
  int64_t row_stride, head_stride, dim;  // elements

  std::byte* at(int64_t row, int64_t head) const {
    return data + (row * row_stride + head * head_stride) * static_cast<int64_t>(bytes(dtype));
  }
};
// Those of t [rows, heads * dim].
inline HeadVectors heads_of(const Tensor& t, int64_t dim) {
  return {static_cast<std::byte*>(t.data), t.dtype, t.row_stride, dim, dim};
}
// Those of t [rows * heads, dim].
inline HeadVectors rows_as_heads(const Tensor& t, int64_t heads) {
  return {static_cast<std::byte*>(t.data), t.dtype, heads * t.row_stride, t.row_stride, t.cols()};
}

struct AttendCall {
  AttendShape shape;
  std::span<const HeadVectors> q;  // parts of a query vector, one after the other
  HeadVectors out;
  Tensor values;  // the pages of values; may be those of the keys
  int rope = 0;   // the bf16 elements in a row of quantized latents (ops/latent_row.h)
};

struct AttendScratch {
  int64_t workspace = 0;  // floats per thread
  int64_t states = 0;     // floats that the threads share
};

// Returns the memory for every step whose sequences have at most `max_context` positions; `tiles`
// says that some of them may be computed in tiles.
AttendScratch attend_scratch(const AttendShape& shape, int threads, int max_context, bool tiles);

}  // namespace skiff::cpu
