#include "ops/cuda/linear/tuned.h"

#include <cstring>

namespace skiff::cuda {
namespace {

constexpr uint64_t kMagic = 0x31646e7574666b73;  // "skftund1"
constexpr size_t kHeadWords = 4, kProductWords = 6 + std::tuple_size_v<ProductAlgorithm>;

}  // namespace

std::vector<std::byte> to_bytes(const TunedProducts& tuned) {
  std::vector<uint64_t> words = {kMagic, tuned.library, tuned.capability, tuned.products.size()};
  for (const auto& [key, algorithm] : tuned.products) {
    for (const int64_t n :
         {key.rows, key.in, key.features, key.x_stride, key.out_stride, int64_t{key.out_type}})
      words.push_back(static_cast<uint64_t>(n));
    words.insert(words.end(), algorithm.begin(), algorithm.end());
  }
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

std::optional<TunedProducts> tuned_of(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadWords * 8 || bytes.size() % 8 != 0) return {};
  std::vector<uint64_t> words(bytes.size() / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const size_t room = (words.size() - kHeadWords) / kProductWords;
  if (words[0] != kMagic || words[3] != room || words.size() != kHeadWords + room * kProductWords)
    return {};
  TunedProducts tuned{.library = words[1], .capability = words[2], .products = {}};
  for (size_t i = 0; i < room; ++i) {
    const uint64_t* w = words.data() + kHeadWords + i * kProductWords;
    const auto number = [&](size_t at) { return static_cast<int64_t>(w[at]); };
    TunedProduct& p = tuned.products.emplace_back();
    p.key = {.rows = number(0),
             .in = number(1),
             .features = number(2),
             .x_stride = number(3),
             .out_stride = number(4),
             .out_type = static_cast<int32_t>(number(5))};
    std::memcpy(p.algorithm.data(), w + 6, sizeof p.algorithm);
  }
  return tuned;
}

}  // namespace skiff::cuda
