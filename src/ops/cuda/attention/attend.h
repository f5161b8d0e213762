// ops/cuda/attention/attend.h -- attention over the paged cache.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/batch.h"

namespace skiff::cuda {

// Ops::gqa_attend for any mixture of f32 and bf16, any head_dim that is a multiple of 8 up to 256,
// any page size and window; f32 throughout. A row's result depends on its position, its query and
// its context only, bit for bit. Padding rows get zeros. The launch depends on num_tokens and spec
// only.
void gqa_attend_generic(const Tensor& out, const Tensor& q, const Gqa& spec,
                        const RaggedBatch& batch, const KvLayer& kv, cudaStream_t stream);

}  // namespace skiff::cuda
