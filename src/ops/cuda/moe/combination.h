// ops/cuda/moe/combination.h -- the last step of a mixture of experts, which can be started
// together with what follows: the sum of what a token's experts gave, the output of a shared
// expert, and the norm behind them.
#pragma once
#include <cuda_runtime.h>

#include "ops/ops.h"

namespace skiff::cuda {

// out[t] = sum over k in order of weight[t, k] * outer[position[t * K + k]], with f32 sums; outer
// and out both f32 or both bf16. `position` null: the copies are not permuted. Copies with expert
// -1 add nothing. Where `more` is not empty, out += more behind the rounding.
struct Combination {
  Tensor out, outer;
  const int32_t* position = nullptr;
  Tensor expert, weight;  // the Routing's
  Tensor more = {};
};
void combine(const Combination& c, cudaStream_t stream);

// combine(), and then residual += out and y = norm(residual), in one kernel, with the bits of
// kernels apart. norms_with() returns whether it takes the operands.
bool norms_with(const Combination& c, const Tensor& y, const Tensor& residual, const Norm& norm);
void combine_norm(const Combination& c, Tensor y, Tensor residual, const Norm& norm,
                  cudaStream_t stream);

}  // namespace skiff::cuda
