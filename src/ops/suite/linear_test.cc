// linear and prepare.
#include <optional>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

struct Shape {
  int rows, in, out;
};
constexpr Shape kShapes[] = {{0, 32, 32},   {1, 1, 1},     {1, 64, 64},    {1, 257, 129},
                             {2, 33, 5},    {17, 100, 31}, {17, 513, 65},  {5, 31, 513},
                             {40, 96, 100}, {1, 1000, 48}, {16, 128, 256}, {33, 65, 17}};

// Every |error| <= (K + 2) roundings of sum |x||w| + |bias|, in whatever order K products and the
// bias are added up.
void expect_product(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const int64_t in = x.cols();
  expect_near(out, [&](int64_t r, int64_t o) {
    double sum = bias ? at(bias, o) : 0, size = std::abs(sum);
    for (int64_t i = 0; i < in; ++i) {
      const double product = at(x, r, i) * at(w, o, i);
      sum += product;
      size += std::abs(product);
    }
    return Approx{sum, static_cast<double>(in + 2) * kF32Round * size};
  });
}

// `kept` is the format that the weight is prepared for.
void linear_case(Ops& ops, const Shape& s, DType weight, DType act, DType out_type, bool bias,
                 std::optional<DType> kept = std::nullopt) {
  const DType met_as = kept.value_or(act);
  SCOPED_TRACE(fmt::format("rows {} in {} out {} weight {} kept {} act {} out {} bias {}", s.rows,
                           s.in, s.out, name(weight), name(met_as), name(act), name(out_type),
                           bias));
  Workspace ws(static_cast<uint64_t>(s.rows * 7 + s.in * 3 + s.out));
  const Tensor x = ws.random(act, {s.rows, s.in}, 1, s.in % 3);
  const Tensor out = ws.output(out_type, {s.rows, s.out});
  Linear plain;
  plain.weight = ws.random(weight, {s.out, s.in});
  if (bias) plain.bias = ws.random(DType::kF32, {s.out}, 4);
  // What the weights become when they are prepared, kept aside while the originals are spoilt,
  // because prepare() promises not to need them any more.
  const Tensor met = ws.output(met_as, {s.out, s.in});
  convert(met, plain.weight);
  const Tensor met_bias = bias ? ws.output(DType::kF32, {s.out}) : Tensor{};
  if (bias) convert(met_bias, plain.bias);
  Buffer owner;
  ws.begin_op({});
  const Linear ready = ops.prepare(plain, {met_as}, &owner);
  ws.end_op();
  for (int o = 0; o < s.out; ++o) {
    for (int i = 0; i < s.in; ++i) put(plain.weight, o, i, NAN);
    if (bias) put(plain.bias, o, 0, NAN);
  }
  EXPECT_EQ(ready.weight.dim, plain.weight.dim);
  EXPECT_EQ(ready.format, WeightFormat{met_as});
  ws.begin_op({out});
  ops.linear(out, x, ready);
  ws.end_op();
  expect_product(out, x, met, met_bias);
}

TEST_P(OpSuite, SaysWhichFormatsItMultiplies) {
  EXPECT_TRUE(ops->multiplies({DType::kF32}));
  EXPECT_TRUE(ops->multiplies({DType::kBF16}));
  EXPECT_FALSE(ops->multiplies({DType::kI64}));
  EXPECT_FALSE(ops->multiplies({.dtype = DType::kF32, .block_out = 1, .scale = DType::kI64}));
}

TEST_P(OpSuite, LinearOfEveryShape) {
  for (const Shape& shape : kShapes) {
    for (bool bias : {false, true}) {
      linear_case(*ops, shape, DType::kF32, DType::kF32, DType::kF32, bias);
      linear_case(*ops, shape, DType::kBF16, DType::kBF16, DType::kBF16, bias);
    }
  }
}

// A router's weights stay f32 where activations are bf16. Shapes of the fast kernels, of those at
// their edges, and of what only the general one takes.
TEST_P(OpSuite, LinearKeepsFloat32Weights) {
  for (const Shape& shape : kShapes)
    linear_case(*ops, shape, DType::kF32, DType::kBF16, DType::kF32, false, DType::kF32);
  for (const int rows : {1, 16, 17, 33, 130, 1025, 1100, 2050})
    linear_case(*ops, {rows, 264, 24}, DType::kF32, DType::kBF16, DType::kF32, rows % 2 == 0,
                DType::kF32);
  for (const DType weight : {DType::kF16, DType::kBF16})
    linear_case(*ops, {20, 128, 64}, weight, DType::kBF16, DType::kF32, false, DType::kF32);
  linear_case(*ops, {3, 70, 45}, DType::kF32, DType::kBF16, DType::kBF16, true, DType::kF32);
}

TEST_P(OpSuite, LinearOfSmallSizes) {
  for (const DType act : {DType::kF32, DType::kBF16})
    for (const int in : {1, 2, 3, 31, 33})
      for (const int out : {1, 2, 15, 17, 33})
        for (const int rows : {1, 3, 35}) linear_case(*ops, {rows, in, out}, act, act, act, true);
}

TEST_P(OpSuite, LinearOfEveryDtype) {
  for (DType weight : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType act : {DType::kF32, DType::kBF16}) {
      for (DType out : {DType::kF32, act}) {
        linear_case(*ops, {3, 70, 45}, weight, act, out, true);
        linear_case(*ops, {20, 130, 80}, weight, act, out, false);
      }
    }
  }
}

// The gate's and the up's products as in expect_product(), each rounded once more on the way; no
// activation is steeper than 1.13.
void gated_case(Ops& ops, const Shape& s, DType act, bool bias, Act kind) {
  SCOPED_TRACE(fmt::format("rows {} in {} width {} act {} bias {} gelu {}", s.rows, s.in, s.out,
                           name(act), bias, kind == Act::kGelu));
  Workspace ws(static_cast<uint64_t>(s.rows * 5 + s.in + s.out));
  const Tensor x = ws.random(act, {s.rows, s.in}), out = ws.output(act, {s.rows, s.out});
  Linear plain;
  plain.weight = ws.random(act, {int64_t{2} * s.out, s.in}, 2 / std::sqrt(s.in));
  if (bias) plain.bias = ws.random(DType::kF32, {int64_t{2} * s.out});
  Buffer owner;
  const Linear w = ops.prepare(plain, {act}, &owner);
  Arena arena(Buffer::pinned(static_cast<size_t>(s.rows) * static_cast<size_t>(s.out) * 8 + 64));
  ws.begin_op({out});
  ops.gated_linear(out, x, w, kind, arena);
  ws.end_op();
  EXPECT_EQ(arena.mark(), 0u);
  const auto product = [&](int64_t r, int64_t o) {
    double sum = bias ? at(plain.bias, o) : 0, size = std::abs(sum);
    for (int64_t i = 0; i < s.in; ++i) {
      sum += at(x, r, i) * at(plain.weight, o, i);
      size += std::abs(at(x, r, i) * at(plain.weight, o, i));
    }
    const double bound = (s.in + 2) * kF32Round * size;
    return Approx{sum, bound + round_off(act) * (std::abs(sum) + bound)};
  };
  expect_near(out, [&](int64_t r, int64_t c) {
    const Approx gate = product(r, c), up = product(r, s.out + c);
    const double g = gate.value;
    const double on =
        kind == Act::kGelu ? g * 0.5 * (1 + std::erf(g / std::sqrt(2))) : g / (1 + std::exp(-g));
    const double on_bound = 1.13 * gate.bound + 8 * kF32Round * std::abs(g);
    return Approx{on * up.value,
                  on_bound * (std::abs(up.value) + up.bound) + std::abs(on) * up.bound};
  });
}

TEST_P(OpSuite, GatedLinear) {
  for (DType act : {DType::kF32, DType::kBF16}) {
    for (const Shape& s : {Shape{0, 32, 8}, Shape{1, 64, 64}, Shape{2, 33, 5}, Shape{17, 100, 31},
                           Shape{3, 2048, 3100}, Shape{40, 96, 104}}) {
      gated_case(*ops, s, act, false, Act::kSilu);
      if (s.in < 1000) gated_case(*ops, s, act, true, Act::kGelu);
    }
  }
}

TEST_P(OpSuite, LinearRowsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  for (DType act : {DType::kF32, DType::kBF16}) {
    for (DType out_type : {DType::kF32, act}) {
      for (const Shape& s : {Shape{37, 100, 65}, Shape{65, 257, 48}}) {
        Workspace ws(3);
        const Tensor x = ws.random(act, {s.rows, s.in}), out = ws.output(out_type, {s.rows, s.out});
        Linear plain;
        plain.weight = ws.random(act, {s.out, s.in});
        plain.bias = ws.random(DType::kF32, {s.out});
        Buffer owner;
        const Linear w = ops->prepare(plain, {act}, &owner);
        expect_rows_independent(s.rows, [&](int begin, int count) {
          const Tensor part = out.row_range(begin, count);
          ops->linear(part, x.row_range(begin, count), w);
          RowBytes rows;
          for (int r = 0; r < count; ++r) rows.push_back(row_bytes(part, r));
          return rows;
        });
      }
    }
  }
}

}  // namespace
}  // namespace skiff::suite
