// ops/cuda/quant/round_rows.h -- rows of activations become e4m3 with a scale for each row.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/quant/inputs.h"
#include "tensor/tensor.h"

namespace skiff::cuda {

struct RoundedRows {
  Tensor x;                       // e4m3 [rows, columns] without gaps
  const float* scales = nullptr;  // [rows]
};

// Scratch for `rows` rows of `in` columns, and the most rows that fit scratch of `bytes`.
size_t rounded_rows_bytes(int64_t rows, int64_t in);
int64_t rounded_rows_that_fit(size_t bytes, int64_t in);

// Returns whether round_rows() takes x: bf16 in whole pieces of 16 bytes.
bool rounds_rows(const Tensor& x);
// Where the rounded rows of x lie on scratch of rounded_rows_bytes(), which begins with scales.
RoundedRows rounded_rows_of(const InputScratch& scratch, const Tensor& x);
// The rows of x as InputFormat::kToken says, on scratch of rounded_rows_bytes().
RoundedRows round_rows(const InputScratch& scratch, const Tensor& x, cudaStream_t stream);

}  // namespace skiff::cuda
