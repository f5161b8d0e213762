// What AMX machines compute in vectors against what they compute in tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "ops/cpu/cpu_features.h"
#include "tensor/convert.h"

namespace skiff::cpu {
namespace {

std::vector<float> random(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = (static_cast<float>(rng() >> 8) * 0x1p-23f - 1) * scale;
  return out;
}
std::vector<BF16> rounded(const std::vector<float>& x) {
  std::vector<BF16> out;
  out.reserve(x.size());
  for (float v : x) out.push_back(to_bf16(v));
  return out;
}

// The first n results are the same bits, or none is a number.
bool same(const std::vector<float>& a, const std::vector<float>& b, int64_t n) {
  return std::equal(a.begin(), a.begin() + n, b.begin(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

// Vectors against tiles: few rows against those among many. The smallest activations make products
// and sums subnormal, which tiles take for zero, and leave zeros of both signs.
class VectorsOfAmx : public testing::TestWithParam<float> {
 protected:
  static constexpr int64_t kRows = kFewRowsAmx, kMany = 20;
  void SetUp() override {
    if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  }
  std::vector<BF16> rows(int64_t inputs) {
    return rounded(random(static_cast<size_t>(kMany * inputs), 7, GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Scales, VectorsOfAmx, testing::Values(1.0f, 0x1p-124f, 0x1p-131f));

TEST_P(VectorsOfAmx, MultiplyPlainPanelsAsTilesDo) {
  constexpr int64_t kInputs = 96, kPanels = 6;
  const auto x = rows(kInputs), w = rounded(random(size_t{kPanels} * kInputs * kPanel, 6));
  GemmBlock g = {.a = x.data(),
                 .lda = kInputs,
                 .rows = kMany,
                 .b = w.data(),
                 .panel_stride = kInputs * kPanel,
                 .panels = kPanels,
                 .k = kInputs,
                 .ldc = kPanels * kPanel};
  for (const bool add : {false, true}) {
    std::vector<float> many(size_t{kMany} * kPanels * kPanel, 0x1p-126f), few = many;
    g.add = add;
    g.rows = kMany;
    g.c = many.data();
    gemm_bf16_amx(g);
    for (int64_t n = 1; n <= kRows; ++n) {
      std::ranges::fill(few, 0x1p-126f);
      g.rows = n;
      g.c = few.data();
      plain_rows_amx(g);
      EXPECT_TRUE(same(few, many, n * g.ldc)) << n << " rows" << (add ? ", added" : "");
    }
  }
}

TEST_P(VectorsOfAmx, MultiplyCodesAsTilesDo) {
  constexpr int64_t kLines = 37;  // a tile takes 8 or 4 of them at once
  std::mt19937 rng(5);
  std::vector<uint32_t> words(kLines * kBand * kPanel);
  for (uint32_t& word : words) word = static_cast<uint32_t>(rng());
  const auto scale = random(size_t{kBand} * kPanel, 8);
  const CodeSum sum = {.lines = kLines};
  for (const Codes codes :
       {Codes::kI8, Codes::kU8, Codes::kF8E4M3, Codes::kI4, Codes::kU4, Codes::kF4E2M1}) {
    const int64_t filled = kLines * (is_nibble(codes) ? 8 : 4);
    const int64_t inputs = (filled + kKStep - 1) / kKStep * kKStep;
    auto x = rows(inputs);
    for (int64_t r = 0; r < kMany; ++r)
      for (int64_t i = filled; i < inputs; ++i) x[static_cast<size_t>(r * inputs + i)] = {};
    std::vector<uint16_t> values(static_cast<size_t>(kBand * inputs * kPanel));
    for (int64_t p = 0; p < kBand; ++p)
      expand_avx512bf16(values.data() + p * inputs * kPanel,
                        {words.data() + p * kPanel, int64_t{kBand} * kPanel, kLines}, codes);
    std::vector<float> many(size_t{kMany} * kBand * kPanel), few = many;
    gemm_bf16_amx({.a = x.data(),
                   .lda = inputs,
                   .rows = kMany,
                   .b = values.data(),
                   .panel_stride = inputs * kPanel,
                   .panels = kBand,
                   .k = inputs,
                   .c = many.data(),
                   .ldc = int64_t{kBand} * kPanel});
    for (int r = 0; r < kMany; ++r)
      for (size_t i = 0; i < scale.size(); ++i)
        many[static_cast<size_t>(r) * scale.size() + i] *= scale[i];
    for (int n = 1; n <= kRows; ++n) {
      few_rows_amx({.a = x.data(),
                    .lda = inputs,
                    .rows = n,
                    .b = words.data(),
                    .panel_words = kLines * kPanel,
                    .panels = kBand,
                    .codes = codes,
                    .sums = &sum,
                    .count = 1,
                    .scale = scale.data(),
                    .groups = 1,
                    .c = few.data(),
                    .first = true});
      EXPECT_TRUE(same(few, many, n * std::ssize(scale)))
          << static_cast<int>(codes) << ", rows " << n;
    }
  }
}

}  // namespace
}  // namespace skiff::cpu
