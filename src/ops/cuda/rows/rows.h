// ops/cuda/rows/rows.h -- Ops' operations on rows, on a stream; contracts in ops/ops.h. They
// allocate nothing and do not wait. A launch depends on shapes only.
#pragma once
#include <cuda_runtime.h>

#include "ops/ops.h"

namespace skiff::cuda {

// out[r] = x[ids[r]]; dtypes f32 or bf16, x also f16. An empty `ids` means 0, 1, ...
void copy_rows(Tensor out, Tensor x, Tensor ids, cudaStream_t stream);
// Takes rows of up to max_norm_cols() columns, which a block keeps in shared memory.
void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm, cudaStream_t stream);
int64_t max_norm_cols();  // on the current device
void add(Tensor out, Tensor x, cudaStream_t stream);
void relu(Tensor x, cudaStream_t stream);
void gated_act(Tensor out, Tensor gate_up, Act act, cudaStream_t stream);
void load_tokens(Tensor tokens, Tensor last, cudaStream_t stream);
void store_tokens(Tensor last, Tensor slots, Tensor tokens, cudaStream_t stream);

}  // namespace skiff::cuda
