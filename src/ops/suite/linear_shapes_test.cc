// linear, gated_linear and prepare in the shape classes of a device's kernels: weights held by a
// block, weights streamed in tiles of 8 to 32 rows, products by cuBLASLt, gathered single rows.
#include <numeric>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

struct Shape {
  int rows, in, out;
};

// Millions of values, faster than Rng::normal(): uniform in (-scale, scale), from xorshift.
void fill(const Tensor& t, uint64_t seed, double scale) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t c = 0; c < t.cols(); ++c) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      put(t, r, c, scale * (static_cast<double>(x >> 40) * 0x1p-23 - 1));
    }
  }
}

// Outputs that are compared: the first and last ones, both sides of the edges of some tiles, and
// others at random.
std::vector<int64_t> some_columns(Rng& rng, int64_t out) {
  std::vector<int64_t> cols;
  for (int64_t c : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{127}, int64_t{128},
                    out / 2, out - 129, out - 128, out - 65, out - 2, out - 1})
    if (c >= 0 && c < out) cols.push_back(c);
  for (int i = 0; i < 36; ++i) cols.push_back(rng.below(static_cast<int>(out)));
  return cols;
}

// Every |error| <= (K + 2) roundings of sum |x||w| + |bias|, in whatever order they are added up.
Approx product(const Tensor& x, int64_t r, const Linear& w, int64_t o) {
  double sum = w.bias ? at(w.bias, o) : 0, size = std::abs(sum);
  for (int64_t i = 0; i < x.cols(); ++i) {
    const double p = at(x, r, i) * at(w.weight, o, i);
    sum += p;
    size += std::abs(p);
  }
  return {sum, static_cast<double>(x.cols() + 2) * kF32Round * size};
}

void expect_some(Workspace& ws, const Tensor& out,
                 const std::function<Approx(int64_t, int64_t)>& want) {
  for (int64_t r = 0; r < out.rows(); ++r)
    for (int64_t c = 0; c < out.cols(); ++c)
      ASSERT_FALSE(std::isnan(at(out, r, c))) << "row " << r << ", column " << c;
  const std::vector<int64_t> cols = some_columns(ws.rng, out.cols());
  for (int64_t r = 0; r < out.rows(); r += std::max<int64_t>(1, out.rows() / 20)) {
    for (int64_t c : cols) {
      SCOPED_TRACE(fmt::format("row {}, column {}", r, c));
      expect_near(out.row_range(r, 1).col_range(c, 1),
                  [&](int64_t, int64_t) { return want(r, c); });
    }
  }
}

struct Plain {
  Linear linear;
  Linear ready;
  Buffer owner;
};
void make_weights(Plain& w, Ops& ops, Workspace& ws, int64_t out, int64_t in, bool bias,
                  DType type = kBF16) {
  w.linear.weight = ws.output(type, {out, in});
  fill(w.linear.weight, static_cast<uint64_t>(out + in), 1.5 / std::sqrt(static_cast<double>(in)));
  if (bias) w.linear.bias = ws.random(kF32, {out});
  w.ready = ops.prepare(w.linear, {type}, &w.owner);
}

class LinearShapes : public OpSuite {
 protected:
  bool device() const { return ops->device() != Device{}; }

  void linear_case(const Shape& s, DType out_type, bool bias, int64_t gap = 0,
                   DType weight = kBF16) {
    SCOPED_TRACE(fmt::format("rows {} in {} out {} to {} bias {} gap {} weight {}", s.rows, s.in,
                             s.out, name(out_type), bias, gap, name(weight)));
    Workspace ws(static_cast<uint64_t>(s.rows * 7 + s.in * 3 + s.out));
    const Tensor x = ws.random(kBF16, {s.rows, s.in}, 1, gap);
    const Tensor out = ws.output(out_type, {s.rows, s.out}, gap);
    Plain w;
    make_weights(w, *ops, ws, s.out, s.in, bias, weight);
    ws.begin_op({out});
    ops->linear(out, x, w.ready);
    ws.end_op();
    expect_some(ws, out, [&](int64_t r, int64_t c) { return product(x, r, w.linear, c); });
  }

  // The gate's and the up's products, each rounded once more on the way; no activation is steeper
  // than 1.13.
  void gated_case(const Shape& s, Act act, bool bias) {
    SCOPED_TRACE(fmt::format("rows {} in {} width {} gelu {} bias {}", s.rows, s.in, s.out,
                             act == Act::kGelu, bias));
    Workspace ws(static_cast<uint64_t>(s.rows * 5 + s.in + s.out));
    const Tensor x = ws.random(kBF16, {s.rows, s.in}), out = ws.output(kBF16, {s.rows, s.out});
    Plain w;
    make_weights(w, *ops, ws, int64_t{2} * s.out, s.in, bias);
    Arena arena(Buffer::pinned(static_cast<size_t>(s.rows) * static_cast<size_t>(s.out) * 8 + 64));
    ws.begin_op({out});
    ops->gated_linear(out, x, w.ready, act, arena);
    ws.end_op();
    expect_some(ws, out, [&](int64_t r, int64_t c) {
      Approx g = product(x, r, w.linear, c), u = product(x, r, w.linear, s.out + c);
      for (Approx* a : {&g, &u}) a->bound += kBf16Round * (std::abs(a->value) + a->bound);
      const double on = act == Act::kGelu ? g.value * 0.5 * (1 + std::erf(g.value / std::sqrt(2)))
                                          : g.value / (1 + std::exp(-g.value));
      const double on_bound = 1.13 * g.bound + 8 * kF32Round * std::abs(g.value);
      return Approx{on * u.value,
                    on_bound * (std::abs(u.value) + u.bound) + std::abs(on) * u.bound};
    });
  }
};

// Weights of up to 1 MiB and up to 16 rows: a block holds the weights of one output.
TEST_P(LinearShapes, SmallWeights) {
  for (const Shape& s : {Shape{1, 2560, 64},
                         {2, 4096, 128},
                         {7, 4104, 100},
                         {16, 8192, 64},
                         {15, 72, 7000},
                         {8, 8, 5},
                         {17, 2560, 64}}) {
    linear_case(s, kF32, false);
    if (device()) linear_case(s, kBF16, true), linear_case(s, kBF16, false, 8);
  }
}

// At least 24 MiB of weights and up to 32 rows: streamed in tiles of 8, 16 or 32 rows of x, cut
// along the inner dimension. 3096 is no multiple of a chunk of 64, nor 4100 of a tile of 128.
TEST_P(LinearShapes, StreamedWeights) {
  for (int rows :
       device() ? std::vector<int>{1, 2, 7, 8, 9, 15, 16, 17, 32, 33} : std::vector<int>{9}) {
    linear_case({rows, 3096, 4100}, kBF16, true);
    if (device()) linear_case({rows, 3096, 4100}, kF32, false);
  }
  if (device()) linear_case({16, 4096, 3300}, kBF16, false, 8);
}

TEST_P(LinearShapes, StreamedGatedWeights) {
  for (int rows : device() ? std::vector<int>{1, 2, 8, 9, 16, 17, 31, 33} : std::vector<int>{9}) {
    gated_case({rows, 2056, 3104}, Act::kSilu, false);
    if (device()) gated_case({rows, 2056, 3104}, Act::kGelu, rows == 8);
  }
}

// One row and weights that fit the shared memory of all multiprocessors: fetched before the row is
// there. 4104 inputs and 20000 outputs are too many.
TEST_P(LinearShapes, ResidentWeights) {
  if (!device()) return linear_case({1, 1032, 700}, kBF16, true);
  for (const Shape& s : {Shape{1, 2560, 3584},
                         {1, 2560, 2560},
                         {1, 4096, 2049},
                         {1, 1000, 700},
                         {1, 264, 16001},
                         {1, 4104, 300},
                         {1, 64, 20000}}) {
    linear_case(s, kBF16, true);
    linear_case(s, kF32, false);
  }
}

// Shapes for cuBLASLt: more rows than are streamed, or fewer weights; biases are added to f32 sums.
TEST_P(LinearShapes, ManyRows) {
  for (const Shape& s : {Shape{17, 512, 1536},
                         {33, 1024, 1000},
                         {130, 520, 776},
                         {300, 256, 640},
                         {1000, 128, 264},
                         {3, 1024, 2048}}) {
    linear_case(s, kBF16, true);
    if (device()) linear_case(s, kF32, true), linear_case(s, kBF16, false, 8);
    if (!device()) return;
  }
}

// Routers, whose weights stay float32: the numbers of rows, outputs and inner elements on both
// sides of the edges of tiles of 16 to 88 rows and of 64 outputs, and of what the blocks of a
// cluster share. Of 7176 inner elements a block has fewer than others, and of 8 most have none;
// tiles of 88 rows have no room for 8192, and no tiles have any for 8704.
TEST_P(LinearShapes, RowsByFloat32Weights) {
  if (!device()) return linear_case({34, 264, 40}, kF32, true, 0, kF32);
  for (const Shape& s : {Shape{17, 1032, 288},
                         {32, 7168, 256},
                         {33, 7168, 256},
                         {64, 2056, 256},
                         {65, 1024, 257},
                         {128, 7168, 256},
                         {150, 3080, 250},
                         {256, 7168, 256},
                         {256, 8, 256},
                         {129, 2560, 128},
                         {200, 8192, 64},
                         {255, 7176, 192},
                         {256, 8192, 256},
                         {257, 520, 72},
                         {40, 8, 65},
                         {100, 1032, 33},
                         {77, 8704, 130},
                         {256, 12288, 64}}) {
    linear_case(s, kF32, true, 0, kF32);
    linear_case(s, kF32, false, 8, kF32);
  }
}

// Outputs whose rows do not begin on multiples of 16 bytes, as logits of an odd vocabulary, which
// libraries refuse; more rows than are streamed.
TEST_P(LinearShapes, ManyRowsOfOddOutputs) {
  if (!device()) GTEST_SKIP() << "outputs of every number are alike: LinearShapes.ManyRows";
  for (const Shape& s :
       {Shape{33, 1024, 1001}, {100, 2056, 3301}, {130, 520, 777}, {300, 256, 641}}) {
    linear_case(s, kF32, false);
    linear_case(s, kBF16, true);
  }
}

// One row: gathered operations fetch weights through a ring, whose smallest item (an inner
// dimension of 256) comes most often. 26,000 outputs are more than 48 such items for each of 132
// blocks.
TEST_P(LinearShapes, OneRowOfManyOutputs) {
  for (const Shape& s : {Shape{1, 256, 26000},
                         {1, 256, 60000},
                         {1, 512, 26000},
                         {1, 768, 13001},
                         {1, 2560, 7000},
                         {1, 2816, 2050},
                         {1, 5120, 2050},
                         {1, 14336, 600}}) {
    linear_case(s, kF32, false);
    if (!device()) return;
    linear_case(s, kBF16, true);
  }
  gated_case({1, 256, 13001}, Act::kSilu, true);
}

// Stacks of experts are converted row by row where a row is a whole expert; a grid of a device has
// at most 65,535 blocks of 256 elements along one dimension, fewer than these rows are long.
TEST_P(LinearShapes, PrepareConvertsWideStacks) {
  if (!device()) GTEST_SKIP() << "no grid; PrepareConvertsEveryDtype covers the values";
  constexpr int64_t kOut = 4099, kIn = 4097;  // odd, so no vector load spans two elements
  for (DType dtype : {kF16, kF32}) {
    Workspace ws(3);
    Linear plain;
    plain.weight = ws.output(dtype, {2, kOut, kIn});
    plain.experts = 2;
    fill(plain.weight, 5, 2);
    Buffer owner;
    const Linear ready = ops->prepare(plain, {kBF16}, &owner);
    const Tensor got = ws.output(kBF16, {2, kOut, kIn});
    ops->copy(got, ready.weight);
    finish();
    int64_t wrong = 0;
    for (int64_t e = 0; e < 2; ++e)
      for (int64_t c = 0; c < kOut * kIn; ++c)
        wrong += at(got, e, c) != rounded(at(plain.weight, e, c), kBF16);
    EXPECT_EQ(wrong, 0) << name(dtype);
  }
}

TEST_P(LinearShapes, PrepareConvertsEveryDtype) {
  if (!device()) GTEST_SKIP() << "the host packs weights; LinearOfEveryDtype covers it";
  for (DType dtype : {kF32, kF16, kBF16}) {
    for (DType compute : {kF32, kBF16}) {
      for (const Shape& s : {Shape{0, 64, 64}, {0, 33, 7}, {0, 257, 129}, {0, 1, 1}, {0, 2, 5}}) {
        Workspace ws(static_cast<uint64_t>(s.in));
        Linear plain;
        plain.weight = ws.random(dtype, {s.out, s.in}, 3);
        Buffer owner;
        const Linear ready = ops->prepare(plain, {compute}, &owner);
        const Tensor got = ws.output(compute, {s.out, s.in});
        ops->copy(got, ready.weight);
        finish();
        for (int64_t o = 0; o < s.out; ++o)
          for (int64_t i = 0; i < s.in; ++i)
            ASSERT_EQ(at(got, o, i), rounded(at(plain.weight, o, i), compute));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearShapes, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skiff::suite
