#include "base/random.h"
#include "ops/ops.h"

namespace skiff {

double uniform_draw(uint64_t seed, uint64_t draw) {
  const uint64_t bits = mix64(mix64(seed + kSplitMixStep) + kSplitMixStep * (draw + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace skiff
