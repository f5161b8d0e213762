// ops/cuda/quant/inputs.h -- rows of activations as quantized weights meet them: rounded as
// WeightFormat::input says, in the order of the weight's columns.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/jobs.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Memory on the device for them, used by one stream.
struct InputScratch {
  void* data = nullptr;
  size_t bytes = 0;
};

// What rows become.
enum class Met : uint8_t {
  kFloats,  // float32 values
  kHalves,  // bf16: values, or whole numbers that a scale of each row multiplies
  kFloat8,  // e4m3, padded with zeros to a multiple of 128 columns, with a scale for each 128
};

struct MetRows {
  Tensor x;
  const float* row_scales = nullptr;  // [rows] of kHalves; null: values
  const float* chunk_scales =
      nullptr;  // [columns / 128][chunk_stride] of kFloat8, 16 bytes aligned
  int64_t chunk_stride = 0;
};

// Returns whether rows must be changed before they meet the weight.
inline bool changes_rows(const Linear& w) { return w.format.input.has_value() || bool{w.order}; }

// What rows become for the kernels of packed weights.
Met met_by(const Linear& w);

// Scratch for `rows` rows of `in` columns, and the most rows that fit scratch of `bytes`.
size_t met_rows_bytes(Met as, int64_t rows, int64_t in);
// The part of it that scales take, and MetRows::chunk_stride.
size_t met_scale_bytes(int64_t rows, int64_t in);
int64_t met_scale_stride(int64_t rows);
int64_t met_rows_that_fit(Met as, size_t bytes, int64_t in);

// The rows of x changed for w, on scratch of met_rows_bytes(). With JobList::jobs, bf16 rows are
// changed in place (but not to kFloats), and scratch has only their scales. With jobs, a stack's
// input scale is that of each row's expert; where x has one row for all of JobList::expert, the
// result has one row too, unless their scales differ. `tight`: chunk_stride is the number of rows,
// as cuBLASLt has it.
MetRows meet(const InputScratch& scratch, Met as, const Tensor& x, const Linear& w,
             const JobList& jobs, cudaStream_t stream, bool tight = false);

// What meet() makes of bf16 rows in place where w meets e4m3 rows with a scale for each 128 columns
// in their order; nothing for other weights. The caller writes codes and scales.
std::optional<MetRows> groups_in_place(const InputScratch& scratch, const Tensor& x,
                                       const Linear& w);

}  // namespace skiff::cuda
