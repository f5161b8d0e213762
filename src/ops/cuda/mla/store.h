// ops/cuda/mla/store.h -- from projected rows to rotated queries and stored latents.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/batch.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Ops::mla_store on `stream`. `speeds` is rope_frequencies(spec.rope) in device memory. Activations
// and cache f32 or bf16. Angles are position times speed, rounded to float, as on every other
// backend; padding rows are left alone and store nothing. A row's results depend on that row alone.
// The launch depends on num_tokens and spec only.
void mla_store(const Tensor& q, const Tensor& kv, const Norm& norm, const Mla& spec,
               const RaggedBatch& batch, const KvLayer& cache, const float* speeds,
               cudaStream_t stream);

}  // namespace skiff::cuda
