#include "ops/ops.h"

namespace skiff {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection with good avalanche.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

}  // namespace

double uniform_draw(uint64_t seed, uint64_t draw) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  const uint64_t bits = mix(mix(seed + kGolden) + kGolden * (draw + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace skiff
