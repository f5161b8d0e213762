// ops/cuda/sampling/sampling.h -- Ops' operations on logits, on a stream; contracts in ops/ops.h.
// Nothing is allocated and nobody waits. Everything but the logits may lie in page-locked host
// memory.
#pragma once
#include <cuda_runtime.h>

#include "ops/batch.h"

namespace skiff::cuda {

void edit_logits(Tensor logits, const LogitEdits& edits, cudaStream_t stream);
void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch, cudaStream_t stream);
void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
              Tensor logits, Tensor chosen, cudaStream_t stream);

}  // namespace skiff::cuda
