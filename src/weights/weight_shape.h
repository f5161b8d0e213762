// weights/weight_shape.h -- the size of a weight that is not there yet.
#pragma once
#include <cstdint>

namespace skiff {

// A weight [out, in], or [experts, out, in] where it is a stack; its bias is [out], and the
// order of its columns (Linear::order) [in].
struct WeightShape {
  int64_t experts = 0;  // 0: one matrix
  int64_t out = 0, in = 0;
  bool bias = false, order = false;
};

}  // namespace skiff
