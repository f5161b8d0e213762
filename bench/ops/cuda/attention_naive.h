// What the attention kernels are judged by: the formula in double, one block per row and head.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/attention/attend_kernels.h"

namespace skiff::bench {

struct NaiveRow {
  int row, seq, position;
  bool exact = false;  // products of bytes and their scales are not rounded to bf16
};
// value and size [n, heads * head_dim] f64: the result, and the weighted sum of absolute values.
// scores: scratch of n * heads * max_kv doubles.
void naive_attend(const cuda::AttendArgs& args, const NaiveRow* rows, int n, int max_kv,
                  double* scores, double* value, double* size);
// Bell-shaped values of deviation `scale`.
void fill_random(void* data, size_t elements, bool bf16, float scale, unsigned seed);
// Replaces e4m3 codes of NaN, which no store makes, by those of the largest numbers.
void drop_nan_codes(uint8_t* codes, size_t n);

}  // namespace skiff::bench
