// weights/linear.h -- a weight and how it is stored. Callers of Ops never look inside.
#pragma once
#include "tensor/tensor.h"

namespace skiff {

enum class Scheme : uint8_t {
  kPlain,   // row-major [out, in] as checkpoints have it
  kPanels,  // ops/cpu's own order, see ops/cpu/panels.h
};

// `weight` keeps its logical shape whatever the scheme: [out, in], or [experts, out, in] for a
// stack of experts. A shape alone does not tell a stack with in = 1 from a matrix.
struct Linear {
  Tensor weight;
  Tensor bias;  // [out] f32; empty when none
  Scheme scheme = Scheme::kPlain;
  int64_t experts = 0;  // of a stack; 0: a matrix
};

struct Norm {
  Tensor weight;  // [dim] f32; empty: no norm here
  float eps = 1e-6f;
};

}  // namespace skiff
