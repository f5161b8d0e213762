// weights/linear.h -- a weight, its format and its packing. Callers of Ops never look inside.
#pragma once
#include "weights/format.h"

namespace skiff {

// The order in which a weight's elements lie in memory.
enum class Packing : uint8_t {
  kPlain,   // row-major [out, in] as checkpoints have it
  kPanels,  // ops/cpu's own order, see ops/cpu/panels.h
  kTiles,   // ops/cuda's order of experts, see ops/cuda/linear/tiles.h
};

// `weight` keeps its logical shape whatever the packing: [out, in], or [experts, out, in] for a
// stack of experts. A stack with in = 1 and a matrix have the same shape: `experts` decides.
struct Linear {
  Tensor weight;
  Tensor scale, zero;  // one of each block, as `format` says; empty when it has none
  Tensor bias;         // [out] f32; empty when none
  Tensor input_scale;  // [1] f32, or [experts]; only with InputFormat::kStatic
  // [in] i32: column i of the weight is multiplied by x[order[i]]. Empty: columns are in order.
  // With it, the columns that share a scale lie side by side, as WeightFormat says.
  Tensor order;
  WeightFormat format;  // as prepare() leaves it; not needed where plain values have no scale
  Packing packing = Packing::kPlain;
  int64_t experts = 0;  // number of matrices of a stack; 0: one matrix
};

struct Norm {
  Tensor weight;  // [dim] f32; empty where there is no norm
  float eps = 1e-6f;
};

}  // namespace skiff
