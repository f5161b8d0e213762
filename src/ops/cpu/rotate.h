// ops/cpu/rotate.h -- rotary position embeddings, applied to one head.
#pragma once
#include <cstdint>

#include "arch/spec.h"

namespace skiff::cpu {

// Rotates each pair x[i] by the angle whose cosine and sine are cos[i] and sin[i].
inline void rotate(float* x, const float* cos, const float* sin, const Rope& rope) {
  const int64_t half = rope.dim / 2;
  const int64_t step = rope.interleaved ? 2 : 1, other = rope.interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    float* pair = x + i * step;
    const float a = pair[0], b = pair[other];
    pair[0] = a * cos[i] - b * sin[i];
    pair[other] = b * cos[i] + a * sin[i];
  }
}

}  // namespace skiff::cpu
