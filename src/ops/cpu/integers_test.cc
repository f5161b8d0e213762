// Products of integers: every instruction set, number of threads and cut gives the bits that the
// definition gives, because sums are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/memory.h"
#include "weights/codes.h"

namespace skiff::cpu {
namespace {

constexpr DType kF32 = DType::kF32, kI8 = DType::kI8, kU8 = DType::kU8, kI4 = DType::kI4,
                kU4 = DType::kU4;
constexpr InputFormat kTokens{kI8, InputFormat::kToken}, kGroups{kI8, InputFormat::kGroups},
    kStatic{kI8, InputFormat::kStatic};

struct Case {
  WeightFormat format;
  int64_t rows, in, out;
  bool extreme = false;  // all codes and activations are the lowest ones
};

// A weight [out, in], activations [rows, in] and what their product is.
class Product {
 public:
  explicit Product(const Case& c) : c_(c), rng_(static_cast<unsigned>(c.rows + c.in)) {
    const WeightFormat& f = c.format;
    weight_.format = f;
    weight_.weight = make(f.dtype, {c.out, c.in});
    for (int64_t i = 0; i < c.out * c.in; ++i)
      store_code(weight_.weight.data, f.dtype, i, c.extreme ? lowest() : random_code());
    weight_.scale = make(kF32, {num_blocks(c.out, f.block_out), num_blocks(c.in, f.block_in)});
    for (int64_t i = 0; i < weight_.scale.elements(); ++i)
      weight_.scale.as<float>()[i] = uniform() * 0.03f;
    if (f.input->scales == InputFormat::kStatic) {
      weight_.input_scale = make(kF32, {1});
      weight_.input_scale.as<float>()[0] = 0.007f;  // some activations are clipped
    }
    x_ = make(kF32, {c.rows, c.in});
    for (int64_t i = 0; i < x_.elements(); ++i) x_.as<float>()[i] = c.extreme ? -1 : uniform();
    for (int64_t r = 0; r < c.rows; ++r) want(r);
  }

  Tensor x() const { return x_; }
  const Linear& weight() const { return weight_; }
  const std::vector<float>& wanted() const { return want_; }
  Tensor make(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    buffers_.emplace_back(Device{}, byte_size(dtype, n) + 1);
    return buffers_.back().view(dtype, shape);
  }

 private:
  float uniform() { return static_cast<float>(rng_() >> 8) * 0x1p-23f - 1; }
  unsigned random_code() { return static_cast<unsigned>(rng_()) & 0xff; }
  unsigned lowest() const { return is_signed() ? (bits(c_.format.dtype) == 8 ? 0x80 : 8) : 0xff; }
  bool is_signed() const { return c_.format.dtype == kI8 || c_.format.dtype == kI4; }

  // The activations of a row as integers, and their scales: one, or one for each 128.
  void round(const float* x, std::vector<int64_t>& integers, std::vector<float>& scales) const {
    const InputFormat& input = *c_.format.input;
    const int64_t size = input.scales == InputFormat::kGroups ? InputFormat::kGroup : c_.in;
    for (int64_t i = 0; i < c_.in; i += size) {
      float most = input.scales == InputFormat::kGroups ? InputFormat::kLeastMax : 0;
      for (int64_t j = i; j < std::min(c_.in, i + size); ++j) most = std::max(most, std::abs(x[j]));
      float scale = most == 0 ? 1 : most / 127.0f;
      if (input.scales == InputFormat::kStatic) scale = weight_.input_scale.as<float>()[0];
      scales.push_back(scale);
      for (int64_t j = i; j < std::min(c_.in, i + size); ++j)
        integers.push_back(
            static_cast<int64_t>(std::clamp(std::nearbyint(x[j] / scale), -128.0f, 127.0f)));
    }
  }

  // Sums end where a scale does, and after 65,536 inputs.
  void want(int64_t row) {
    std::vector<int64_t> integers;
    std::vector<float> scales;
    round(x_.row<float>(row), integers, scales);
    const WeightFormat& f = c_.format;
    const int64_t blocks = num_blocks(c_.in, f.block_in);
    for (int64_t o = 0; o < c_.out; ++o) {
      float total = 0;
      int64_t sum = 0;
      for (int64_t i = 0; i < c_.in; ++i) {
        sum += static_cast<int64_t>(code_value(weight_.weight.data, f.dtype, o * c_.in + i)) *
               integers[static_cast<size_t>(i)];
        const int64_t block = f.block_in ? i / f.block_in : 0;
        const int64_t group = scales.size() > 1 ? i / InputFormat::kGroup : 0;
        const int64_t next = i + 1;
        const bool ends = next == c_.in || (f.block_in && next % f.block_in == 0) ||
                          (scales.size() > 1 && next % InputFormat::kGroup == 0) ||
                          (next - block * f.block_in) % 65'536 == 0;
        if (!ends) continue;
        const float scale =
            weight_.scale.as<float>()[(f.block_out ? o / f.block_out : 0) * blocks + block];
        const float value = static_cast<float>(sum) * scale * scales[static_cast<size_t>(group)];
        total = total + value;
        sum = 0;
      }
      want_.push_back(total);
    }
  }

  Case c_;
  std::mt19937 rng_;
  std::vector<Buffer> buffers_;
  Linear weight_;
  Tensor x_;
  std::vector<float> want_;
};

// Multiplies rows [begin, begin + rows).
void expect_exact(Ops& ops, const Linear& ready, Product& product, int64_t begin, int64_t rows) {
  const int64_t out = ready.weight.dim[0];
  const Tensor y = product.make(kF32, {rows, out});
  ops.linear(y, product.x().row_range(begin, rows), ready);
  for (int64_t i = 0; i < rows * out; ++i)
    ASSERT_EQ(
        std::bit_cast<uint32_t>(y.as<float>()[i] + 0.0f),
        std::bit_cast<uint32_t>(product.wanted()[static_cast<size_t>(begin * out + i)] + 0.0f))
        << ops.arithmetic() << ": " << describe(ready.format) << ", row " << begin + i / out
        << " of " << rows << ", output " << i % out;
}

void expect_exact(const Case& c) {
  Product product(c);
  for (const Isa isa : available_isas())
    for (const int threads : {1, 3}) {
      const auto ops = make_cpu_ops(CpuOptions{.threads = threads, .isa = isa});
      Buffer owner;
      const Linear ready = ops->prepare(product.weight(), c.format, &owner);
      for (const int64_t size : {int64_t{1}, int64_t{5}, c.rows})
        for (int64_t r = 0; r < c.rows; r += size)
          expect_exact(*ops, ready, product, r, std::min(size, c.rows - r));
    }
}

std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> out;
  for (const DType dtype : {kI8, kU8, kI4, kU4})
    for (const InputFormat& input : {kTokens, kStatic, kGroups})
      for (const int block : {0, 128, 32, 16}) out.push_back({dtype, 1, block, kF32, {}, input});
  out.push_back({kI8, 0, 0, kF32, {}, kTokens});
  out.push_back({kI4, 128, 128, kF32, {}, kGroups});
  return out;
}

TEST(Integers, HaveTheBitsOfTheDefinition) {
  for (const WeightFormat& format : formats()) {
    expect_exact({format, 1, 32, 1});
    expect_exact({format, 29, 386, 70});
    expect_exact({format, 14, 1'000, 33});
  }
}

TEST(Integers, HaveTheBitsOfTheDefinitionInManyRows) {
  for (const WeightFormat& format :
       {WeightFormat{kI8, 1, 0, kF32, {}, kTokens}, WeightFormat{kI4, 1, 128, kF32, {}, kTokens}})
    expect_exact({format, 300, 258, 130});
}

// Sums of the lowest codes and activations, over more inputs than 32 bits hold sums of.
TEST(Integers, DoNotOverflow) {
  for (const DType dtype : {kI8, kU8, kI4, kU4})
    for (const InputFormat& input : {kTokens, kStatic}) {
      expect_exact({{dtype, 1, 0, kF32, {}, input}, 1, 16'384, 3, true});
      expect_exact({{dtype, 1, 0, kF32, {}, input}, 2, 140'002, 2, true});
    }
}

TEST(Integers, RowsThatAreNoNumbersStaySo) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const InputFormat& input : {kTokens, kStatic, kGroups}) {
    Product product({{kI8, 1, 0, kF32, {}, input}, 4, 200, 40});
    product.x().row<float>(1)[77] = nan;
    product.x().row<float>(2)[150] = -infinity;
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(CpuOptions{.threads = 1, .isa = isa});
      Buffer owner;
      const Linear ready = ops->prepare(product.weight(), product.weight().format, &owner);
      const Tensor y = product.make(kF32, {4, 40});
      ops->linear(y, product.x(), ready);
      for (int64_t o = 0; o < 40; ++o) {
        EXPECT_EQ(y.row<float>(0)[o], product.wanted()[static_cast<size_t>(o)]);
        EXPECT_TRUE(std::isnan(y.row<float>(1)[o])) << o;
        // With a scale from the checkpoint, infinity is clipped like any large number.
        EXPECT_EQ(std::isfinite(y.row<float>(2)[o]), input.scales == InputFormat::kStatic) << o;
        EXPECT_EQ(y.row<float>(3)[o], product.wanted()[static_cast<size_t>(120 + o)]);
      }
    }
  }
}

TEST(Integers, LargestSizeIsFound) {
  std::mt19937 rng(3);
  for (const Isa isa : available_isas()) {
    const Kernels k = kernels_for(isa);
    for (int64_t n = 1; n < 70; ++n) {
      std::vector<float> x(static_cast<size_t>(n));
      float most = 0;
      for (float& v : x) {
        v = static_cast<float>(rng() >> 8) * 0x1p-20f - 8;
        most = std::max(most, std::abs(v));
      }
      ASSERT_EQ(k.max_abs(x.data(), n), most);
      x[static_cast<size_t>(n / 2)] = -std::numeric_limits<float>::infinity();
      ASSERT_TRUE(std::isinf(k.max_abs(x.data(), n)));
      x[static_cast<size_t>(n - 1)] = std::nanf("");
      ASSERT_TRUE(std::isnan(k.max_abs(x.data(), n)));
    }
  }
}

}  // namespace
}  // namespace skiff::cpu
