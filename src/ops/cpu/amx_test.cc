// What AMX machines compute of few rows against what they compute of many, and tiles against
// vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <utility>
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

// Few rows against those among many. The smallest activations make products and sums subnormal,
// which tiles take for zero, and leave zeros of both signs.
class FewRowsOfAmx : public testing::TestWithParam<float> {
 protected:
  static constexpr int64_t kMany = 20;
  void SetUp() override {
    if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  }
  std::vector<BF16> rows(int64_t inputs) {
    return rounded(random(static_cast<size_t>(kMany * inputs), 7, GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Scales, FewRowsOfAmx, testing::Values(1.0f, 0x1p-124f, 0x1p-131f));

TEST_P(FewRowsOfAmx, MultiplyPlainPanelsInVectorsAsTilesDo) {
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
    for (int64_t n = 1; n <= kFewRowsAmx; ++n) {
      std::ranges::fill(few, 0x1p-126f);
      g.rows = n;
      g.c = few.data();
      plain_rows_amx(g);
      EXPECT_TRUE(same(few, many, n * g.ldc)) << n << " rows" << (add ? ", added" : "");
    }
  }
}

TEST_P(FewRowsOfAmx, MultiplyCodesAsTheirValues) {
  constexpr int64_t kLines = 37;  // a tile takes 8 or 4 of them
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
    // Up to 16 rows meet bands, more meet pairs of panels.
    for (const int n : {1, 2, 7, 15, 16, 17, 20}) {
      code_rows_amx({.a = x.data(),
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
                     .ldc = int64_t{kBand} * kPanel,
                     .first = true});
      EXPECT_TRUE(same(few, many, n * std::ssize(scale)))
          << static_cast<int>(codes) << ", rows " << n;
    }
  }
}

// A product with codes whose sums begin where others end.
struct CodeProduct {
  std::vector<uint32_t> words;
  std::vector<CodeSum> sums;
  std::vector<float> scale;
  int64_t inputs = 0, lines = 0;

  CodeProduct(const std::vector<int64_t>& sum_lines, int64_t line_inputs, int64_t step) {
    for (const int64_t n : sum_lines) {
      const auto group = std::ssize(sums);
      sums.push_back({.begin = inputs, .line = lines, .lines = n, .group = group});
      inputs += (n * line_inputs + step - 1) / step * step;
      lines += n;
    }
    std::mt19937 rng(5);
    words.resize(static_cast<size_t>(lines * kPanels * kPanel));
    for (uint32_t& word : words) word = static_cast<uint32_t>(rng());
    scale = random(static_cast<size_t>(kPanels * std::ssize(sums) * kPanel), 8);
  }
  CodeRows rows(const void* a, int n, Codes codes, std::vector<float>& c) const {
    c.assign(static_cast<size_t>(n * kColumns), std::nanf(""));
    return {.a = a,
            .lda = inputs,
            .rows = n,
            .b = words.data(),
            .panel_words = lines * kPanel,
            .panels = kPanels,
            .codes = codes,
            .sums = sums.data(),
            .count = std::ssize(sums),
            .scale = scale.data(),
            .groups = std::ssize(sums),
            .c = c.data(),
            .ldc = kColumns,
            .first = true};
  }
  static constexpr int kPanels = kBand + 2;
  static constexpr int64_t kColumns = int64_t{kPanels} * kPanel;
};

// In lines: one sum that goes on through several runs over the panels, sums that are longer and
// shorter than what is multiplied at once, and many in one run.
const std::vector<int64_t> kSums[] = {{700}, {5}, {130, 1, 300, 64}, std::vector<int64_t>(40, 16)};
constexpr int kManyRows = 300;  // more than are multiplied at once

TEST(TilesOfAmx, SumCodesOfManyRowsAsOfFew) {
  if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  for (const Codes codes : {Codes::kI8, Codes::kF8E4M3, Codes::kI4})
    for (const auto& lines : kSums) {
      const int64_t line_inputs = is_nibble(codes) ? 8 : 4;
      const CodeProduct product(lines, line_inputs, kKStep);
      auto x = rounded(random(static_cast<size_t>(kManyRows * product.inputs), 7));
      for (int64_t r = 0; r < kManyRows; ++r)
        for (const CodeSum& s : product.sums)
          for (int64_t i = s.lines * line_inputs; i % kKStep != 0; ++i)
            x[static_cast<size_t>(r * product.inputs + s.begin + i)] = {};
      std::vector<float> many, few;
      code_rows_amx(product.rows(x.data(), kManyRows, codes, many));
      for (const auto& [r, n] : {std::pair{0, 1}, {25, 16}, {33, 8}, {255, 2}, {299, 1}}) {
        code_rows_amx(product.rows(&x[static_cast<size_t>(r * product.inputs)], n, codes, few));
        EXPECT_TRUE(
            same({many.begin() + r * product.kColumns, many.end()}, few, n * product.kColumns))
            << static_cast<int>(codes) << ", rows from " << r << ", " << lines.size() << " sums";
      }
    }
}

TEST(TilesOfAmx, SumIntegersAsVectorsDo) {
  if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  for (const Codes codes : {Codes::kU8, Codes::kU4})
    for (const auto& lines : kSums) {
      CodeProduct product(lines, is_nibble(codes) ? 8 : 4, 1);
      product.inputs = (product.inputs + 127) / 64 * 64;
      std::mt19937 rng(9);
      std::vector<int8_t> x(static_cast<size_t>(kManyRows * product.inputs));
      for (int8_t& v : x) v = static_cast<int8_t>(rng());
      // A row's scale, and a number in the place of the sum of its inputs.
      std::vector<float> values;
      for (int r = 0; r < kManyRows; ++r) values.insert(values.end(), {0.5f + r, 100.0f - r});
      for (CodeSum& s : product.sums) s.inputs = 1;
      std::vector<float> tiles, vectors;
      const auto compute = [&](auto kernel, int n, std::vector<float>& c) {
        CodeRows rows = product.rows(x.data(), n, codes, c);
        rows.offset = is_nibble(codes) ? 8 : 128;
        rows.values = values.data();
        rows.value_stride = 2;
        kernel(rows);
      };
      compute(int_rows_avx512vnni, kManyRows, vectors);
      for (const int n : {1, 3, 8, 16, 17, kManyRows}) {
        compute(int_rows_amx, n, tiles);
        EXPECT_TRUE(same(tiles, vectors, std::ssize(tiles)))
            << n << " rows, " << lines.size() << " sums";
      }
    }
}

// What attention to a block of positions reads and writes.
struct Attention {
  static constexpr int kValues = 40;
  static constexpr int64_t kStride = 64, kSums = 64 + kQueryLanes;
  int64_t keys, dim;
  std::vector<BF16> k = rounded(random(static_cast<size_t>(keys * dim), 1, 3));
  std::vector<BF16> v = rounded(random(static_cast<size_t>(keys) * kValues, 2));
  std::vector<const void*> k_rows, v_rows;
  Attention(int64_t keys, int64_t dim) : keys(keys), dim(dim) {
    for (int64_t j = 0; j < keys; ++j) {
      k_rows.push_back(k.data() + j * dim);
      v_rows.push_back(v.data() + j * kValues);
    }
  }
  // Queries [first, first + count), each of which sees keys from its number / 3 to 20 more.
  // Returns maximum, sum and values of each.
  std::vector<float> of(const std::vector<BF16>& q, int first, int count, int from, int to) const {
    const int64_t words = padded_dim(dim) / 2, vectors = (count + kQueryLanes - 1) / kQueryLanes;
    std::vector<uint32_t> packed(static_cast<size_t>(vectors * words * kQueryLanes));
    for (int i = 0; i < count; ++i)
      for (int d = 0; d < dim; ++d) {
        const int64_t word = (i / kQueryLanes * words + d / 2) * kQueryLanes + i % kQueryLanes;
        packed[static_cast<size_t>(word)] |=
            static_cast<uint32_t>(q[static_cast<size_t>((first + i) * dim + d)].bits)
            << (d % 2 * 16);
      }
    std::vector<int32_t> begin, end;
    for (int i = first; i < first + count; ++i) {
      begin.push_back(i / 3);
      end.push_back(std::min(static_cast<int32_t>(keys), i / 3 + 20));
    }
    const auto n = static_cast<size_t>(count);
    std::vector<float> max(n, -INFINITY), sum(n), o(n * kStride);
    struct alignas(64) Memory {
      uint16_t keys[kKvBlock * 96], values[64 * kKvBlock];
      float sums[kQueryLanes * kSums];
    } memory;
    attend_amx({.k = k_rows.data(),
                .v = v_rows.data(),
                .keys = static_cast<int>(keys),
                .dim = static_cast<int>(dim),
                .v_dim = kValues,
                .scale = 0.1f,
                .heads = 1,
                .queries = count,
                .from = from,
                .to = to,
                .q = packed.data(),
                .begin = begin.data(),
                .end = end.data(),
                .max = max.data(),
                .sum = sum.data(),
                .o = o.data(),
                .o_stride = kStride,
                .keys_at = memory.keys,
                .values_at = memory.values,
                .sums_at = memory.sums,
                .sums_stride = kSums});
    std::vector<float> out;
    for (size_t i = 0; i < n; ++i) {
      out.insert(out.end(), {max[i], sum[i]});
      out.insert(out.end(), o.begin() + static_cast<int64_t>(i) * kStride,
                 o.begin() + static_cast<int64_t>(i) * kStride + kValues);
    }
    return out;
  }
};

// A query of a decode, alone in its vector, against the same among those of a prompt.
TEST(TilesOfAmx, AttendToABlockWhateverTheCompany) {
  if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  constexpr int kMany = 53, kFrom = 5, kTo = 50;
  constexpr int64_t kWidth = Attention::kValues + 2;
  const Attention attention(50, 72);
  const auto q = rounded(random(static_cast<size_t>(kMany * attention.dim), 3, 3));
  const std::vector<float> many = attention.of(q, 0, kMany, kFrom, kTo);
  for (int i = 0; i < kMany; ++i) {
    const bool computed = i >= kFrom && i < kTo;
    const std::vector<float> alone = attention.of(q, i, 1, 0, computed ? 1 : 0);
    EXPECT_TRUE(same({many.begin() + i * kWidth, many.end()}, alone, kWidth)) << "query " << i;
    EXPECT_EQ(alone[1] > 0, computed);
  }
}

// Keys that lie evenly apart are read where they are, others are copied first.
TEST(TilesOfAmx, AttendToKeysWherever) {
  if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  const Attention even(kKvBlock, 64);
  Attention uneven = even;
  std::vector<BF16> last(even.k.end() - even.dim, even.k.end());
  uneven.k_rows.back() = last.data();
  for (const int n : {1, 8, 40}) {
    const auto q = rounded(random(static_cast<size_t>(n * even.dim), 3, 3));
    const std::vector<float> want = uneven.of(q, 0, n, 0, n);
    EXPECT_TRUE(same(even.of(q, 0, n, 0, n), want, std::ssize(want))) << n << " queries";
  }
}

}  // namespace
}  // namespace skiff::cpu
