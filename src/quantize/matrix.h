// quantize/matrix.h -- a dense matrix of float32 in host memory, row-major. Quantizing computes in
// float32 whatever a checkpoint stores.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace skiff::quantize {

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;  // [rows * cols]

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}

  float* row(int64_t r) { return values.data() + r * cols; }
  const float* row(int64_t r) const { return values.data() + r * cols; }
  std::span<float> row_span(int64_t r) { return {row(r), static_cast<size_t>(cols)}; }
  std::span<const float> row_span(int64_t r) const { return {row(r), static_cast<size_t>(cols)}; }
  // A view; the matrix must outlive it and is not changed through it where it is const.
  Tensor tensor() const {
    return host_tensor(const_cast<float*>(values.data()), DType::kF32, {rows, cols});
  }
  void append_rows(const float* from, int64_t count) {
    values.insert(values.end(), from, from + count * cols);
    rows += count;
  }
};

}  // namespace skiff::quantize
