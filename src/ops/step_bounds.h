// ops/step_bounds.h -- the largest step that a backend will be asked to compute.
#pragma once
#include "arch/spec.h"
#include "tensor/tensor.h"

namespace skiff {

struct StepBounds {
  const ModelSpec& spec;
  DType act = DType::kF32;  // of activations; weights are prepared for it
  int max_rows = 0;         // rows of one step
  int max_logit_rows = 0;   // rows of one step whose logits are wanted
  int max_seqs = 0;
  int max_context = 0;  // positions of one sequence
};

}  // namespace skiff
