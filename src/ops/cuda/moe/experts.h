// ops/cuda/moe/experts.h -- the feed-forward layer of a mixture of experts, by grouped GEMMs.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/stream.h"
#include "ops/cuda/moe/combination.h"
#include "ops/ops.h"

namespace skiff::cuda {

// The weights of a layer's experts: gate_up [E, 2 * width, hidden] (gate first) and down
// [E, hidden, width].
struct ExpertWeights {
  const Linear &gate_up, &down;
  Act act;

  int64_t width() const { return down.weight.dim[2]; }
};

// out[t] = sum over k of weight[t, k] * expert(x[t]), as Ops::experts says. x and the weights are
// all f32 or all bf16. The activations between the two GEMMs and the result of each expert are
// rounded to the dtype of x; their weighted sum is f32 and rounded once.
// Takes at most experts_bytes() from the arena and gives them back, since the kernels of one stream
// use them in turn. Rows whose experts are -1 become zeros.
//
// Where the routing is not `sorted` yet, sort_copies() is part of this.
//
// What is returned is the last step, which the caller starts before anything else on the stream;
// without an `out` there is none.
[[nodiscard]] Combination experts(Tensor out, Tensor x, const Routing& routing,
                                  const ExpertWeights& w, const StreamedProducts& streamed,
                                  Arena& arena, cudaStream_t stream, bool sorted = true);

size_t experts_bytes(DType act, int64_t tokens, const Router& router, int64_t hidden,
                     int64_t width);

}  // namespace skiff::cuda
