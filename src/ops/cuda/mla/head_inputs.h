// ops/cuda/mla/head_inputs.h -- what kernels of few rows of heads have in common: their arguments,
// and the numbers of inputs of a head for which they are compiled, those of DeepSeek's products
// before and behind latent attention.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "weights/linear.h"

namespace skiff::cuda {

struct HeadArgs {
  __nv_bfloat16* out;
  const __nv_bfloat16 *x, *w;
  int64_t out_stride, x_stride;  // elements from one head to the next
  int rows, heads, features;
};

// Arguments for rows that have all heads one after the other, and a stack of a weight for each.
inline HeadArgs head_args(const Tensor& out, const Tensor& x, const Linear& w) {
  return {.out = static_cast<__nv_bfloat16*>(out.data),
          .x = static_cast<const __nv_bfloat16*>(x.data),
          .w = static_cast<const __nv_bfloat16*>(w.weight.data),
          .out_stride = out.row_stride,
          .x_stride = x.row_stride,
          .rows = static_cast<int>(x.rows() / w.experts),
          .heads = static_cast<int>(w.experts),
          .features = static_cast<int>(out.cols())};
}

// Calls f with `in` as a constant. Returns false where there are no kernels for it.
template <class F>
bool for_head_inputs(int64_t in, F f) {
  if (in == 128) return f(std::integral_constant<int, 128>()), true;
  if (in == 512) return f(std::integral_constant<int, 512>()), true;
  return false;
}

}  // namespace skiff::cuda
