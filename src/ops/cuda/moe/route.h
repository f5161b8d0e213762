// ops/cuda/moe/route.h -- the router of a mixture of experts: top-k gating, and the copies of rows
// sorted by expert.
#pragma once
#include <cuda_runtime.h>

#include "ops/ops.h"

namespace skiff::cuda {

constexpr int kMaxExperts = 512;

constexpr int kMaxGroups = 32;

// Returns whether route() takes the router's groups.
inline bool routes(const Router& router) {
  const ExpertGroups& g = router.groups;
  return g.count >= 1 && g.count <= kMaxGroups && g.keep >= 1 && g.keep <= g.count &&
         router.experts % g.count == 0;
}

// Fills `expert` and `weight` of `routing` as Ops::route says, and for one token the other tensors,
// too. logits [T, experts] f32, bias [experts] f32 or empty; experts and those always on are at
// most kMaxExperts. `live`: device pointer to the number of non-padding rows; null: all are.
// `beside`: may begin while the product before runs (ops/cuda/beside.h). Padding rows get expert -1
// with weight 0 and no entry in `order`, whose entries from expert_start[total] on are unspecified.
// NaN scores are chosen last. Launches do not depend on values.
void choose(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
            const int32_t* live, cudaStream_t stream, bool beside = false);
// choose() and, for any other number of tokens than one, sort_copies().
void route(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
           const int32_t* live, cudaStream_t stream, bool beside = false);
// Fills `order` and `expert_start` for the choice in `expert`, whose first element lies on a
// multiple of 16 bytes.
void sort_copies(const Routing& routing, cudaStream_t stream);

}  // namespace skiff::cuda
