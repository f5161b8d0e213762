// ops/cuda/mla/latent_forms.h -- a step of latent attention of which some sequences are computed
// un-absorbed.
#pragma once
#include "ops/cuda/mla/expanded_attention.h"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/mla/latent_attention.h"
#include "tensor/memory.h"

namespace skiff::cuda {

struct LatentForms {
  LatentAttention& absorbed;
  HeadProducts& products;
  ExpandedAttention& expanded;
};

// Ops::latent_attend, for a step that forms.expanded takes(): sequences of which expands() is true
// are computed by it, and the others in the absorbed form. Padding rows of the values become zeros.
void latent_attend(const LatentStep& step, const LatentForms& forms, Arena& arena,
                   cudaStream_t stream);

}  // namespace skiff::cuda
