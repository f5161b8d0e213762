#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "model/values.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

// The pool has a prime size, so that the rows of a matrix start at different places of it.
constexpr size_t kPool = 524'287;

// Draws normal values in pairs by the method of Box and Muller.
std::vector<float> normal_pool(uint64_t seed) {
  std::vector<float> pool(kPool + 1);
  for (size_t i = 0; i < pool.size(); i += 2) {
    const uint64_t bits = splitmix64(seed);
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

// Repeats the pool from its element `start` on; `start` may lie beyond its end.
template <class T>
void fill_from(T* dst, size_t n, const std::vector<float>& pool, size_t start, float mean,
               float deviation) {
  start %= pool.size();
  const size_t first = std::min(n, pool.size());
  for (size_t i = 0; i < first; ++i) {
    const float draw = pool[start + i < pool.size() ? start + i : start + i - pool.size()];
    dst[i] = from_float<T>(mean + deviation * draw);
  }
  for (size_t at = first; at < n; at += std::min(n - at, first))
    std::memcpy(dst + at, dst, std::min(n - at, first) * sizeof(T));
}

class DummyValues final : public Values {
 public:
  DummyValues(uint64_t seed, DType compute, const ModelSpec& spec, const std::vector<Slot>& slots,
              std::span<const SlotCut> cuts)
      : slots_(slots),
        cuts_(cuts),
        spec_(spec),
        compute_(compute),
        seed_(seed),
        pool_(normal_pool(seed)) {}

  DType dtype(size_t i) const override { return slots_[i].dtype(compute_); }
  bool has_bias(size_t i) const override { return slots_[i].bias; }
  size_t bytes(size_t i) const override {
    return is_tied_head(slots_[i], spec_)
               ? 0
               : static_cast<size_t>(slots_[i].elements()) * skiff::bytes(compute_);
  }
  void fill(size_t i, int64_t first, int64_t rows, std::byte* to) const override {
    const Slot& whole = whole_of(i);
    const auto of_bell = bell(whole);
    const float mean = of_bell.first, deviation = of_bell.second;
    const int64_t cols = slots_[i].in;
    const auto fill_as = [&]<class T>(T* dst) {
      const auto put = [&](int64_t element, int64_t n, int64_t at) {
        fill_from(dst + at, static_cast<size_t>(n), pool_,
                  start(whole, 1) + static_cast<size_t>(element), mean, deviation);
      };
      if (cuts_.empty()) return put(first * cols, rows * cols, 0);
      for_each_rows(cuts_[i], first, rows, [&](int64_t row, int64_t count, int64_t at) {
        if (whole.in == cols) return put(row * cols, count * cols, at * cols);
        for (int64_t r = 0; r < count; ++r)
          put((row + r) * whole.in + cuts_[i].col, cols, (at + r) * cols);
      });
    };
    if (dtype(i) == DType::kBF16) return fill_as(reinterpret_cast<BF16*>(to));
    fill_as(reinterpret_cast<float*>(to));
  }
  void fill_bias(size_t i, float* to) const override {
    const auto put = [&](int64_t row, int64_t n, int64_t at) {
      fill_from(to + at, static_cast<size_t>(n), pool_,
                start(whole_of(i), 2) + static_cast<size_t>(row), 0, 0.02f);
    };
    const int64_t rows = slots_[i].out;
    if (cuts_.empty()) return put(0, rows, 0);
    if (!cuts_[i].no_bias) return for_each_rows(cuts_[i], 0, rows, put);
    std::fill_n(to, rows, 0.0f);
  }
  std::string origin(size_t i, int64_t) const override { return describe_slot(slots_[i]); }

 private:
  const Slot& whole_of(size_t i) const { return cuts_.empty() ? slots_[i] : cuts_[i].whole; }
  size_t start(const Slot& slot, uint64_t salt) const {
    uint64_t state = seed_ ^ key_of(slot, salt);
    return splitmix64(state) % pool_.size();
  }
  static std::pair<float, float> bell(const Slot& slot) {
    switch (slot.kind) {
      case Slot::kTable:
        return {0, 1};
      case Slot::kNorm:
        return {1, 0.1f};
      case Slot::kVector:
        return {0, 0.01f};
      case Slot::kLinear:
        break;
    }
    return {0, 1 / std::sqrt(static_cast<float>(slot.in))};
  }

  const std::vector<Slot>& slots_;
  const std::span<const SlotCut> cuts_;
  const ModelSpec& spec_;
  DType compute_;
  uint64_t seed_;
  std::vector<float> pool_;
};

}  // namespace

std::unique_ptr<Values> dummy_values(uint64_t seed, DType compute, const ModelSpec& spec,
                                     const std::vector<Slot>& slots,
                                     std::span<const SlotCut> cuts) {
  return std::make_unique<DummyValues>(seed, compute, spec, slots, cuts);
}

}  // namespace skiff::model
