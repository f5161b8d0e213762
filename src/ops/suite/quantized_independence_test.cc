// A row's bits must not depend on the other rows where batch_invariant() says so. Here quantized
// weights are so large, and rows so many, that a device cuts products in other ways, takes tiles by
// twos, or gives experts jobs of every size. The smaller cases stand with each operation.
#include "ops/suite/formats.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

const WeightFormat kFour = {DType::kI4, 1, 0, kBF16};
const WeightFormat kFourInGroups = {DType::kI4, 1, 128, kBF16};
const WeightFormat kEight = {DType::kI8, 1, 0, kBF16};
const WeightFormat kFloat8Blocks = {
    DType::kF8E4M3, 128, 128, kF32, {}, InputFormat{DType::kF8E4M3, InputFormat::kGroups}};

// Whether each operation runs several times over, which takes minutes with so many rows.
bool is_in_service() { return OpSuite::GetParam().name.ends_with("_in_service"); }

void products_are_independent(Ops& ops, const WeightFormat& format, const Linear& plain, int rows) {
  SCOPED_TRACE(fmt::format("{}: {} rows of {}", describe(format), rows, plain.weight.cols()));
  Workspace ws(11);
  const Tensor x = ws.random(kBF16, {rows, plain.weight.cols()});
  const Tensor out = ws.output(kF32, {rows, plain.weight.rows()});
  Buffer owner;
  const Linear w = ops.prepare(plain, format, &owner);
  expect_ranges_alike(out, [&](int begin, int count) {
    ops.linear(out.row_range(begin, count), x.row_range(begin, count), w);
    ops.wait(ops.mark());
  });
}

TEST_P(OpSuite, RowsOfQuantizedProductsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a row at a time";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    Workspace ws(12);
    products_are_independent(*ops, format, random_weight(ws, format, {.out = 2'176, .in = 2'048}),
                             300);
  }
}

// These weights have so many tiles that a device may multiply few rows by two of them at a time.
// They take long to fill, so only some formats are tested.
TEST_P(OpSuite, RowsOfLargeQuantizedProductsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a row at a time";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  for (const WeightFormat& format : {kFour, kEight, kFloat8Blocks}) {
    if (!ops->multiplies(format)) continue;
    Workspace ws(13);
    products_are_independent(*ops, format, random_weight(ws, format, {.out = 25'600, .in = 8'192}),
                             130);
  }
}

// `router` says which of the layer's experts are here: all, or those of one of several ranks.
void experts_are_independent(Ops& ops, const WeightFormat& format, const Router& router,
                             int64_t hidden, int64_t width, int tokens) {
  SCOPED_TRACE(fmt::format("{}: {} tokens, {} of {} experts", describe(format), tokens,
                           router.here(), router.experts));
  Workspace ws(14);
  const int64_t here = router.total();
  const Linear plain_gate_up =
      random_weight(ws, format, {.experts = here, .out = 2 * width, .in = hidden});
  const Linear plain_down =
      random_weight(ws, format, {.experts = here, .out = hidden, .in = width});
  Buffer owners[2];
  const Linear gate_up = ops.prepare(plain_gate_up, format, &owners[0]);
  const Linear down = ops.prepare(plain_down, format, &owners[1]);
  const Tensor x = ws.random(kBF16, {tokens, hidden}, 0.2);
  const Tensor logits = ws.random(kF32, {tokens, router.experts}, 2);
  const Tensor out = ws.output(kBF16, {tokens, hidden});
  const FeedForward layer = Moe{.router = router, .width = static_cast<int>(width)};
  Arena arena(Buffer::pinned(ops.arena_bytes(layer, static_cast<int>(hidden), tokens, kBF16)));
  expect_ranges_alike(out, [&](int begin, int count) {
    arena.reset();
    const Routing routing = ops.route(logits.row_range(begin, count), {}, router, arena);
    ops.experts(out.row_range(begin, count), x.row_range(begin, count), routing, gate_up, down,
                Act::kSilu, arena);
    ops.wait(ops.mark());
  });
}

// The mean number of an expert's rows goes from less than one to 330.
TEST_P(OpSuite, TokensOfManyQuantizedExpertsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  Router all = {.experts = 32, .top_k = 4, .score = Router::kSigmoid, .factor = 2.5F};
  Router half = all;
  half.before = half.behind = 8;
  for (const WeightFormat& format : {kFour, kFourInGroups, kEight, kFloat8Blocks}) {
    if (!ops->multiplies(format)) continue;
    for (const Router& router : {all, half})
      experts_are_independent(*ops, format, router, 1'024, 256, 2'613);
  }
}

}  // namespace
}  // namespace skiff::suite
