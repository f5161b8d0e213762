#include "model/dummy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>

#include "tensor/convert.h"

namespace skiff {
namespace {

// A prime, so that the rows of a matrix start at different places of the pool.
constexpr size_t kPool = 524'287;

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014).
uint64_t splitmix(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Box and Muller's normal pairs.
std::vector<float> normal_pool(uint64_t seed) {
  std::vector<float> pool(kPool + 1);
  for (size_t i = 0; i < pool.size(); i += 2) {
    const uint64_t bits = splitmix(seed);
    const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;
    const float angle =
        2 * std::numbers::pi_v<float> * static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float radius = std::sqrt(-2 * std::log(u));
    pool[i] = radius * std::cos(angle);
    pool[i + 1] = radius * std::sin(angle);
  }
  pool.resize(kPool);
  return pool;
}

uint64_t key_of(const Slot& slot, uint64_t salt) {
  uint64_t key = salt + static_cast<uint64_t>(slot.layer + 1);
  for (char c : slot.name) key = key * 131 + static_cast<unsigned char>(c);
  return key;
}

template <class T>
void fill_from(T* dst, size_t n, const std::vector<float>& pool, size_t start, float mean,
               float deviation) {
  const size_t first = std::min(n, pool.size());
  for (size_t i = 0; i < first; ++i) {
    const float draw = pool[start + i < pool.size() ? start + i : start + i - pool.size()];
    dst[i] = from_float<T>(mean + deviation * draw);
  }
  for (size_t at = first; at < n; at += std::min(n - at, first))
    std::memcpy(dst + at, dst, std::min(n - at, first) * sizeof(T));
}

}  // namespace

DummyWeights::DummyWeights(uint64_t seed) : seed_(seed), pool_(normal_pool(seed)) {}

void DummyWeights::copy(Tensor dst, float mean, float deviation, uint64_t key) const {
  uint64_t state = seed_ ^ key;
  const size_t start = splitmix(state) % pool_.size();
  const auto n = static_cast<size_t>(dst.elements());
  if (dst.dtype == DType::kBF16) return fill_from(dst.as<BF16>(), n, pool_, start, mean, deviation);
  fill_from(dst.as<float>(), n, pool_, start, mean, deviation);
}

void DummyWeights::fill(Tensor dst, const Slot& slot) const {
  const uint64_t key = key_of(slot, 1);
  switch (slot.kind) {
    case Slot::kTable:
      return copy(dst, 0, 1, key);
    case Slot::kNorm:
      return copy(dst, 1, 0.1f, key);
    case Slot::kVector:
      return copy(dst, 0, 0.01f, key);
    case Slot::kLinear:
      return copy(dst, 0, 1 / std::sqrt(static_cast<float>(slot.in)), key);
  }
}

void DummyWeights::fill_bias(Tensor dst, const Slot& slot) const {
  copy(dst, 0, 0.02f, key_of(slot, 2));
}

}  // namespace skiff
