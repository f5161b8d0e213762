// ops/cuda/drafts/drafts.h -- Ops' operations that follow drafts from step to step without the
// host, on a stream; contracts in ops/ops.h. They allocate nothing and do not wait. Kernels behind
// them may read what they write before their own waits.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "ops/batch.h"

namespace skiff::cuda {

class Starts;

// Items of an attention plan on the device, of whole 4-byte words, of which the first is the
// sequence. The words at `kv_len` and, if not negative, at `stored` are lengths of its context.
struct MovedPlan {
  int32_t* items = nullptr;
  int count = 0, words = 0;
  int kv_len = 0, stored = -1;
};

// Moves rows back (RaggedBatch::moved_back) in the batch and in the plans that were made for it.
void move_back(const RaggedBatch& batch, std::span<const MovedPlan> plans, Starts& starts);

void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out, cudaStream_t stream);
void take_back(Tensor values, Tensor slots, Tensor amounts, cudaStream_t stream);

}  // namespace skiff::cuda
