// ops/cuda/attention/store.h -- from projected rows to rotated queries and stored keys and values.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/batch.h"
#include "weights/linear.h"

namespace skiff::cuda {

// The f32 sums of a GEMM, and the bias that is still to be added.
struct Biased {
  Tensor sums, bias;
};

// Ops::gqa_store on `stream`. Where `biased` is not empty, qkv is made from it first: the sum and
// the bias, rounded to qkv's dtype. `speeds` is rope_frequencies(spec.rope) in device memory.
// Activations and cache f32 or bf16, head_dim an even number up to 256. Angles are position times
// speed, rounded to float, as on every other backend; padding rows are left alone and store
// nothing. A row's results depend on that row alone. The launch depends on num_tokens and spec
// only.
void gqa_store(const Tensor& qkv, const Biased& biased, const Norm& q, const Norm& k,
               const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv, const float* speeds,
               cudaStream_t stream);

}  // namespace skiff::cuda
