// model/dummy.h -- weights out of nothing, for measuring without a checkpoint.
#pragma once
#include <cstdint>
#include <vector>

#include "model/slots.h"

namespace skiff {

// Deterministic in (seed, slot). Linears and the table are normal with deviation 1/sqrt(in)
// (the table: 1), norms lie around 1, biases and correction biases around 0; none is all zeros.
// Values come from one pool of normal draws, read from a different place for each slot, so that
// filling costs about as much as copying.
class DummyWeights {
 public:
  explicit DummyWeights(uint64_t seed);
  // dst contiguous, f32 or bf16.
  void fill(Tensor dst, const Slot& slot) const;
  void fill_bias(Tensor dst, const Slot& slot) const;

 private:
  void copy(Tensor dst, float mean, float deviation, uint64_t key) const;

  uint64_t seed_;
  std::vector<float> pool_;
};

}  // namespace skiff
