// linear and gated_linear of quantized weights with so many rows and outputs that a device deals
// out whole tiles, some rows of which are compared.
#include <functional>
#include <vector>

#include "ops/suite/formats.h"

namespace skiff::suite {
namespace {

constexpr DType kBF16 = DType::kBF16;
// Several chunks of columns, the last of them in part, or all whole.
constexpr int kIn = 392, kWhole = 384;

// Compares some rows, of the first jobs and of the last one, where tiles of columns begin and end.
void expect_some(const Tensor& out, const Linear& plain, const Tensor& x,
                 const std::function<Approx(const std::vector<double>&, int64_t)>& want) {
  const int64_t rows = out.rows(), cols = out.cols();
  for (const int64_t r : {int64_t{0}, int64_t{127}, int64_t{128}, rows / 2, rows - 1}) {
    const std::vector<double> row = rounded_input(row_of(x, r), plain, 0);
    for (const int64_t first : {int64_t{0}, int64_t{120}, int64_t{250}, cols / 2, cols - 140}) {
      SCOPED_TRACE(fmt::format("row {}, columns from {}", r, first));
      expect_near(out.row_range(r, 1).col_range(first, 20),
                  [&](int64_t, int64_t o) { return want(row, first + o); });
    }
    expect_near(out.row_range(r, 1).col_range(cols - 20, 20),
                [&](int64_t, int64_t o) { return want(row, cols - 20 + o); });
  }
}

struct ManyTiles {
  int rows, out;
  int in = kIn;
};

void linear_of_many_tiles(Ops& ops, const WeightFormat& format, const ManyTiles& c) {
  SCOPED_TRACE(fmt::format("{}: rows {} out {}", describe(format), c.rows, c.out));
  Workspace ws(static_cast<uint64_t>(c.rows + c.out));
  const Tensor x = ws.random(kBF16, {c.rows, c.in}), out = ws.output(kBF16, {c.rows, c.out});
  const Linear plain = random_weight(ws, format, {.out = c.out, .in = c.in});
  Buffer owner;
  const Linear w = ops.prepare(plain, format, &owner);
  ws.begin_op({out});
  ops.linear(out, x, w);
  ws.end_op();
  expect_some(out, plain, x, [&](const std::vector<double>& row, int64_t o) {
    return quantized_product(row, plain, 0, o, true);
  });
}

void gated_linear_of_many_tiles(Ops& ops, const WeightFormat& format, const ManyTiles& c) {
  SCOPED_TRACE(fmt::format("{}: rows {} width {}", describe(format), c.rows, c.out));
  Workspace ws(static_cast<uint64_t>(c.rows + c.out));
  const Tensor x = ws.random(kBF16, {c.rows, c.in}, 0.1), out = ws.output(kBF16, {c.rows, c.out});
  const Linear plain = random_weight(ws, format, {.out = int64_t{2} * c.out, .in = c.in});
  Buffer owner;
  const Linear w = ops.prepare(plain, format, &owner);
  Arena arena(Buffer::pinned(byte_size(kBF16, int64_t{2} * c.rows * c.out) + (1 << 20)));
  ws.begin_op({out});
  ops.gated_linear(out, x, w, Act::kSilu, arena);
  ws.end_op();
  expect_some(out, plain, x, [&](const std::vector<double>& row, int64_t o) {
    return gated_output(quantized_product(row, plain, 0, o, true),
                        quantized_product(row, plain, 0, c.out + o, true));
  });
}

// With 33 whole jobs of rows, an even number of tiles is taken by twos where scales are of whole
// rows, and an odd one is not.
TEST_P(OpSuite, QuantizedLinearOfManyTiles) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host has no tiles";
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    linear_of_many_tiles(*ops, format, {4'230, 2'176});
    if (format.block_in == 0) linear_of_many_tiles(*ops, format, {4'230, 4'096});
    if (format.input) linear_of_many_tiles(*ops, format, {1'030, 2'176, kWhole});
  }
}

TEST_P(OpSuite, QuantizedGatedLinearOfManyTiles) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host has no tiles";
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    gated_linear_of_many_tiles(*ops, format, {4'230, format.block_in == 0 ? 2'048 : 1'088});
    if (format.input) gated_linear_of_many_tiles(*ops, format, {1'030, 1'088, kWhole});
  }
}

}  // namespace
}  // namespace skiff::suite
