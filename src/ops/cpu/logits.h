// ops/cpu/logits.h -- a row of logits, its order, and the parameters of its draw.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/batch.h"
#include "ops/ops.h"

namespace skiff::cpu {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();

// One row of logits. NaN, which has no place in an order, counts as impossible.
struct Logits {
  const float* x;
  int64_t n;
  float operator[](int64_t i) const { return std::isnan(x[i]) ? kNever : x[i]; }
};

// Orders by falling logit, then by rising id.
struct Better {
  Logits x;
  bool operator()(int32_t a, int32_t b) const { return x[a] > x[b] || (x[a] == x[b] && a < b); }
};

struct Draw {
  double temperature, top_p, min_p;
  int64_t top_k;
  double uniform;
};

inline Draw draw_of(const SampleBatch& batch, int64_t r) {
  return {.temperature = batch.temperature.as<float>()[r],
          .top_p = batch.top_p.as<float>()[r],
          .min_p = batch.min_p.as<float>()[r],
          .top_k = batch.top_k.as<int32_t>()[r],
          .uniform = uniform_draw(static_cast<uint64_t>(batch.seed.as<int64_t>()[r]),
                                  static_cast<uint64_t>(batch.draw.as<int64_t>()[r]))};
}

// Returns the least logit that min_p keeps.
inline double least_left(float best, const Draw& draw) {
  return draw.min_p > 0 ? best + draw.temperature * std::log(draw.min_p) : kNever;
}

}  // namespace skiff::cpu
