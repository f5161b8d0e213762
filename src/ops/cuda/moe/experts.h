// ops/cuda/moe/experts.h -- the products of a mixture of experts.
#pragma once
#include <cuda_runtime.h>

#include "ops/ops.h"

namespace skiff::cuda {

// out[t] = sum over k of weight[t, k] * expert(x[t]), as Ops::experts says. x and the weights are
// all f32 or all bf16; gate_up [E, 2 * width, hidden] (gate first), down [E, hidden, width], plain
// and contiguous. What lies between the two products is rounded to the dtype of x. `workspace`:
// see ops/cuda/linear/workspace.h. Takes experts_bytes() from the arena and gives them back;
// kernels of one stream use them in turn. Rows whose experts are -1 come out as zeros.
void experts(Tensor out, Tensor x, const Routing& routing, Tensor gate_up, Tensor down, Act act,
             void* workspace, Arena& arena, cudaStream_t stream);

size_t experts_bytes(DType act, int64_t tokens, const Router& router, int64_t hidden,
                     int64_t width);

}  // namespace skiff::cuda
