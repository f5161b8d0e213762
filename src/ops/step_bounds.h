// ops/step_bounds.h -- bounds on the steps that a backend computes.
#pragma once
#include <vector>

#include "arch/spec.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace skiff {

struct StepBounds {
  const ModelSpec& spec;
  DType act = DType::kF32;  // dtype of activations; weights are prepared for it
  int max_rows = 0;         // rows in one step; of an expert, those of each sharer
  int max_logit_rows = 0;   // rows with logits in one step
  int max_seqs = 0;
  int max_context = 0;                     // positions of one sequence
  std::vector<WeightFormat> formats = {};  // the quantized formats among weights
};

}  // namespace skiff
