// base/random.h -- SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014) and a seed that nobody can foresee.
#pragma once
#include <cstdint>

namespace skiff {

// The step between the states of SplitMix64: 2^64 divided by the golden ratio, made odd.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64: a bijection with good avalanche.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Advances the state and returns the generator's next number.
constexpr uint64_t splitmix64(uint64_t& state) { return mix64(state += kSplitMixStep); }

// 64 bits from the entropy source of the operating system.
uint64_t random_seed();

}  // namespace skiff
