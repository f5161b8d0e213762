// Every instruction set of this machine against loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ops/cpu/cpu_features.h"
#include "ops/cpu/panels.h"
#include "ops/cpu/rows.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::cpu {
namespace {

std::vector<float> random(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& x : out)
    x = (static_cast<float>(rng() >> 8) * 0x1p-23f - 1 + 0x1p-25f) * scale;  // never zero
  return out;
}
std::vector<BF16> rounded(const std::vector<float>& x) {
  std::vector<BF16> out;
  out.reserve(x.size());
  for (float v : x) out.push_back(to_bf16(v));
  return out;
}
std::vector<float> widened(const std::vector<BF16>& x) {
  std::vector<float> out;
  out.reserve(x.size());
  for (BF16 v : x) out.push_back(to_float(v));
  return out;
}
Tensor matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
  return host_tensor(data, dtype, {rows, cols});
}

class KernelsTest : public testing::TestWithParam<Isa> {
 protected:
  const Kernels k = kernels_for(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Isas, KernelsTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) {
                           return std::string(kernels_for(info.param).name);
                         });

struct Product {
  std::vector<float> c;
  int64_t ldc;
};

// rows [begin, begin + rows) of x times the packed weight.
Product multiply(const Kernels& k, const PanelShape& shape, const Buffer& packed,
                 const std::vector<float>& x, int64_t begin, int64_t rows) {
  const bool bf16 = shape.dtype == DType::kBF16;
  const bool narrow = bf16 && k.bf16_operand;
  const int64_t lda = shape.k() + 32;
  std::vector<float> wide(static_cast<size_t>(rows * lda));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < shape.in; ++i)
      wide[static_cast<size_t>(r * lda + i)] = x[static_cast<size_t>((begin + r) * shape.in + i)];
  const std::vector<BF16> halves = rounded(wide);
  Product p{{}, shape.panels() * kPanel};
  p.c.assign(static_cast<size_t>(rows * p.ldc), std::nanf(""));
  (bf16 ? k.gemm_bf16
        : k.gemm_f32)({.a = narrow ? static_cast<const void*>(halves.data()) : wide.data(),
                       .lda = lda,
                       .rows = rows,
                       .b = packed.data(),
                       .panel_stride = shape.panel_elements(),
                       .panels = static_cast<int>(shape.panels()),
                       .k = shape.k(),
                       .c = p.c.data(),
                       .ldc = p.ldc});
  return p;
}

TEST_P(KernelsTest, ProductsMatchAndDoNotDependOnTheirRows) {
  ThreadPool pool(2);
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (int64_t in : {1, 31, 64, 1000, 2111})
      for (int64_t out : {1, 40}) {
        const int64_t rows = 45;
        const PanelShape shape = {1, out, in, dtype};
        std::vector<float> w = random(static_cast<size_t>(out * in), 1);
        std::vector<float> x = random(static_cast<size_t>(rows * in), 2);
        if (dtype == DType::kBF16) w = widened(rounded(w)), x = widened(rounded(x));
        Buffer packed({}, static_cast<size_t>(shape.total_bytes()));
        pack_panels(packed.data(), {.weight = matrix(w.data(), DType::kF32, out, in)}, shape, k,
                    pool);
        const Product all = multiply(k, shape, packed, x, 0, rows);
        for (int64_t r = 0; r < rows; ++r) {
          const Product one = multiply(k, shape, packed, x, r, 1);
          const Product few = multiply(k, shape, packed, x, std::min(r, rows - 18), 18);
          for (int64_t o = 0; o < out; ++o) {
            double want = 0, size = 0;
            for (int64_t i = 0; i < in; ++i) {
              const double term = static_cast<double>(w[static_cast<size_t>(o * in + i)]) *
                                  x[static_cast<size_t>(r * in + i)];
              want += term;
              size += std::abs(term);
            }
            // Each of `in` additions and products rounds by 2^-24 of at most `size`.
            const float got = all.c[static_cast<size_t>(r * all.ldc + o)];
            ASSERT_NEAR(got, want, size * static_cast<double>(in + 1) * 0x1p-23)
                << in << ' ' << out;
            ASSERT_EQ(got, one.c[static_cast<size_t>(o)]) << "row " << r << " in " << in;
            ASSERT_EQ(got, few.c[static_cast<size_t>((r - std::min(r, rows - 18)) * few.ldc + o)]);
          }
        }
      }
}

TEST_P(KernelsTest, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -87; v < 87; v += 0.00713f) x.push_back(v);
  std::vector<float> y(x.size());
  k.exp(y.data(), x.data(), 0, 1, static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i] / want, 1, 2 * 0x1p-23) << x[i];
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const float edge[] = {-infinity, -200, 0, 200, infinity, std::nanf("")};
  float out[6];
  k.exp(out, edge, 0, 1, 6);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], 1);
  EXPECT_EQ(out[3], infinity);
  EXPECT_EQ(out[4], infinity);
  EXPECT_TRUE(std::isnan(out[5]));
}

TEST_P(KernelsTest, ConversionsMatchTheScalarOnes) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> y(all.size());
  const auto same = [](float a, float b) {
    return (std::isnan(a) && std::isnan(b)) ||
           std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  k.f16_to_f32(y.data(), all.data(), 65536);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(same(y[i], to_float(F16{all[i]}))) << i;
  k.bf16_to_f32(y.data(), all.data(), 65533);
  for (size_t i = 0; i < 65533; ++i) ASSERT_TRUE(same(y[i], to_float(BF16{all[i]}))) << i;

  std::vector<float> x = random(1003, 3);
  for (uint32_t tie :
       {0x3f808000u, 0x3f818000u, 0x7f7fffffu, 0x7f800000u, 0x7fc00001u, 0xff800001u})
    x.push_back(std::bit_cast<float>(tie));
  std::vector<uint16_t> halves(x.size());
  k.f32_to_bf16(halves.data(), x.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i], to_bf16(x[i]).bits) << x[i];
}

TEST_P(KernelsTest, RowLoopsMatchAtEveryLength) {
  for (int64_t n = 1; n < 150; ++n) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> x = random(size, 4), y = random(size, 5), w = random(size, 6);
    std::vector<float> sum = x, scaled = x, normed(size), gated(size);
    k.add(sum.data(), y.data(), n);
    k.add_scaled(scaled.data(), 0.3f, y.data(), n);
    k.scale(normed.data(), x.data(), 1.7f, w.data(), n);
    k.silu_mul(gated.data(), x.data(), y.data(), n);
    double squares = 0;
    float most = x[0];
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(sum[i], x[i] + y[i]);
      EXPECT_NEAR(scaled[i], x[i] + 0.3 * y[i], 2e-7);
      EXPECT_NEAR(normed[i], x[i] * 1.7 * w[i], 4e-7);
      EXPECT_NEAR(gated[i], x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * y[i], 4e-7);
      squares += static_cast<double>(x[i]) * x[i];
      most = std::max(most, x[i]);
    }
    EXPECT_NEAR(k.sum_squares(x.data(), n), squares, squares * 1e-6);
    EXPECT_EQ(k.max(x.data(), n), most);
  }
  std::vector<float> odd = random(40, 7);
  odd[0] = odd[20] = odd[39] = std::nanf("");
  odd[13] = 5;
  EXPECT_EQ(k.max(odd.data(), 40), 5);
}

// One row of attention in double over keys [begin, end).
std::vector<double> attended(const float* q, const std::vector<float>& keys,
                             const std::vector<float>& values, int dim, int begin, int end) {
  std::vector<double> out(static_cast<size_t>(dim));
  double total = 0;
  for (int j = begin; j < end; ++j) {
    const size_t from = static_cast<size_t>(j) * out.size();
    double s = 0;
    for (size_t d = 0; d < out.size(); ++d) s += static_cast<double>(q[d]) * keys[from + d];
    const double p = std::exp(s / std::sqrt(static_cast<double>(dim)));
    total += p;
    for (size_t d = 0; d < out.size(); ++d) out[d] += p * values[from + d];
  }
  for (double& v : out) v /= total;
  return out;
}

TEST_P(KernelsTest, AttentionBlockMatches) {
  for (bool bf16 : {false, true})
    for (int dim : {1, 15, 64, 80, 128})
      for (int keys : {1, 9, 64}) {
        const int rows = 14;
        const int v_dim = dim > 16 ? dim - 13 : dim;  // latents (Mla) have fewer values than keys
        const int64_t stride = (v_dim + 31) / 32 * int64_t{32};
        const auto width = static_cast<size_t>(dim), n = static_cast<size_t>(keys) * width;
        const std::vector<float> q = random(static_cast<size_t>(rows) * width, 8);
        std::vector<float> key = random(n, 9), value = random(n, 10);
        const std::vector<BF16> key16 = rounded(key), value16 = rounded(value);
        if (bf16) key = widened(key16), value = widened(value16);
        std::vector<const void*> kp, vp;
        for (int j = 0; j < keys; ++j) {
          const size_t at = static_cast<size_t>(j) * width;
          kp.push_back(bf16 ? static_cast<const void*>(&key16[at]) : &key[at]);
          vp.push_back(bf16 ? static_cast<const void*>(&value16[at]) : &value[at]);
        }
        std::vector<float> kt(static_cast<size_t>(dim * kKvBlock), std::nanf("")),
            v(static_cast<size_t>(stride * kKvBlock), std::nanf("")),
            scores(static_cast<size_t>(rows * kKvBlock)), o(static_cast<size_t>(rows * stride)),
            sum(rows), max(rows, -std::numeric_limits<float>::infinity());
        std::vector<int32_t> begin, end;
        for (int r = 0; r < rows; ++r) {
          begin.push_back(r % keys / 2);
          end.push_back(keys - r % keys / 3);
        }
        k.load_kv(kt.data(), v.data(), stride,
                  {.k = kp.data(),
                   .v = vp.data(),
                   .keys = keys,
                   .dim = dim,
                   .v_dim = v_dim,
                   .element = bf16 ? KvElement::kBf16 : KvElement::kF32});
        k.attend({.q = q.data(),
                  .q_stride = dim,
                  .rows = rows,
                  .dim = dim,
                  .keys = keys,
                  .scale = 1 / std::sqrt(static_cast<float>(dim)),
                  .begin = begin.data(),
                  .end = end.data(),
                  .kt = kt.data(),
                  .v = v.data(),
                  .max = max.data(),
                  .sum = sum.data(),
                  .o = o.data(),
                  .o_stride = stride,
                  .scores = scores.data()});
        for (int r = 0; r < rows; ++r) {
          const auto at = static_cast<size_t>(r);
          const auto want =
              attended(&q[at * static_cast<size_t>(dim)], key, value, dim, begin[at], end[at]);
          for (int d = 0; d < v_dim; ++d)
            ASSERT_NEAR(o[static_cast<size_t>(r * stride + d)] / sum[at],
                        want[static_cast<size_t>(d)], 2e-6)
                << dim << ' ' << keys << ' ' << bf16;
        }
      }
}

// One processor runs the kernels of one maker only, so they are compared wherever both can run.
TEST(MakersOfCores, GiveTheSameBits) {
  if (best_isa() < Isa::kAvx512Bf16) GTEST_SKIP() << "no AVX512-BF16 here";
  constexpr int64_t kLines = 37;
  std::mt19937 rng(5);
  std::vector<uint32_t> words(kLines * kBand * kPanel);
  for (uint32_t& word : words) word = static_cast<uint32_t>(rng());
  for (int code = 0; code < 256; ++code)  // each code of 8 bits in each place
    words[static_cast<size_t>(code)] = static_cast<uint32_t>(code) * 0x01010101u;
  for (const Codes codes :
       {Codes::kI8, Codes::kU8, Codes::kF8E4M3, Codes::kI4, Codes::kU4, Codes::kF4E2M1}) {
    std::vector<uint16_t> amd(kLines * 8 * kPanel), intel(amd.size(), 1);
    for (int64_t panel = 0; panel < kBand; ++panel) {
      const CodeLines lines = {words.data() + panel * kPanel, int64_t{kBand} * kPanel, kLines};
      expand_avx512bf16(amd.data(), lines, codes);
      intel = amd;
      intel.front() ^= 1;  // differs unless it is written
      expand_avx512bf16_intel(intel.data(), lines, codes);
      ASSERT_EQ(amd, intel);
    }
    const auto x = rounded(random(size_t{kFewRowsBf16} * kLines * 8, 7));
    const auto scale = random(size_t{kBand} * kPanel, 8);
    const CodeSum sum = {.lines = kLines};
    for (int rows = 1; rows <= kFewRowsBf16; ++rows) {
      std::vector<float> of_amd(static_cast<size_t>(rows) * kBand * kPanel, 1.0f);
      std::vector<float> of_intel(of_amd.size(), 2.0f);
      CodeRows g = {.a = x.data(),
                    .lda = kLines * 8,
                    .rows = rows,
                    .b = words.data(),
                    .panel_words = kLines * kPanel,
                    .panels = kBand,
                    .codes = codes,
                    .sums = &sum,
                    .count = 1,
                    .scale = scale.data(),
                    .groups = 1,
                    .c = of_amd.data(),
                    .ldc = int64_t{kBand} * kPanel,
                    .first = true};
      few_rows_avx512bf16(g);
      g.c = of_intel.data();
      few_rows_avx512bf16_intel(g);
      EXPECT_EQ(0, std::memcmp(of_amd.data(), of_intel.data(), of_amd.size() * sizeof(float)));
    }
  }
}

}  // namespace
}  // namespace skiff::cpu
