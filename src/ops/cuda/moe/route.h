// ops/cuda/moe/route.h -- who computes what in a mixture of experts.
#pragma once
#include <cuda_runtime.h>

#include "ops/ops.h"

namespace skiff::cuda {

constexpr int kMostExperts = 512;

// Fills the tensors of `routing` as Ops::route says. logits [T, experts] f32, bias [experts] f32
// or empty; router.total() <= kMostExperts. `live`: device pointer to the number of non-padding
// rows; null: all are. Padding rows get expert -1 with weight 0 and no place in `order`, whose
// entries from expert_start[total] on are unspecified. Scores that are no numbers are
// chosen last. One kernel for few tokens, else two; nothing depends on the values but the time.
void route(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
           const int32_t* live, cudaStream_t stream);

}  // namespace skiff::cuda
