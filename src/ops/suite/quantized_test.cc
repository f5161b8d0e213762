// linear, gated_linear and prepare of quantized weights, in every format that the backend
// multiplies.
#include <algorithm>
#include <cstring>

#include "ops/suite/formats.h"
#include "weights/codes.h"

namespace skiff::suite {
namespace {

struct QuantizedCase {
  int rows, in, out;
  DType act = DType::kF32;
  DType out_type = DType::kF32;
  bool bias = false, order = false;
};

void quantized_case(Ops& ops, const WeightFormat& format, const QuantizedCase& c) {
  SCOPED_TRACE(fmt::format("{}: rows {} in {} out {} act {} bias {} order {}", describe(format),
                           c.rows, c.in, c.out, name(c.act), c.bias, c.order));
  Workspace ws(static_cast<uint64_t>(c.rows * 7 + c.in * 3 + c.out));
  const Tensor x = ws.random(c.act, {c.rows, c.in}, 1, c.in % 3);
  const Tensor out = ws.output(c.out_type, {c.rows, c.out});
  const Linear plain =
      random_weight(ws, format, {.out = c.out, .in = c.in, .bias = c.bias, .order = c.order});
  std::vector<Approx> want;
  const bool device = ops.device() != Device{};
  for (int r = 0; r < c.rows; ++r) {
    const std::vector<double> row = rounded_input(row_of(x, r), plain, 0);
    for (int o = 0; o < c.out; ++o) want.push_back(quantized_product(row, plain, 0, o, device));
  }
  Buffer owner;
  ws.begin_op({});
  const Linear ready = ops.prepare(plain, format, &owner);
  ops.wait(ops.mark());
  ws.end_op();
  EXPECT_EQ(ready.weight.dim, plain.weight.dim);
  EXPECT_EQ(ready.format, format);
  EXPECT_EQ(
      owner.size(),
      ops.prepared_bytes({.out = c.out, .in = c.in, .bias = c.bias, .order = c.order}, format));
  // prepare() promises not to need the originals any more.
  std::memset(plain.weight.data, 0x5a, byte_size(format.dtype, plain.weight.elements()));
  for (const Tensor& t : {plain.scale, plain.bias, plain.input_scale, plain.order})
    if (t) std::memset(t.data, 0x5a, byte_size(t.dtype, t.elements()));
  ws.begin_op({out});
  ops.linear(out, x, ready);
  ws.end_op();
  expect_near(out, [&](int64_t r, int64_t o) { return want[static_cast<size_t>(r * c.out + o)]; });
}

std::vector<WeightFormat> formats_of(const Ops& ops) {
  std::vector<WeightFormat> out;
  for (const WeightFormat& format : quantized_formats())
    if (ops.multiplies(format)) out.push_back(format);
  return out;
}

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

TEST_P(OpSuite, QuantizedLinearOfEveryFormat) {
  for (const WeightFormat& format : formats_of(*ops)) {
    for (const DType act : {kF32, kBF16}) {
      quantized_case(*ops, format, {0, 64, 32, act, act});
      quantized_case(*ops, format, {1, 32, 1, act, kF32, true});
      quantized_case(*ops, format, {1, 1000, 48, act, act});
      quantized_case(*ops, format, {2, 34, 5, act, act, true});
      quantized_case(*ops, format, {17, 130, 33, act, act, true});
      quantized_case(*ops, format, {33, 384, 129, act, kF32});
      quantized_case(*ops, format, {5, 258, 257, act, act, true});
    }
    quantized_case(*ops, format, {130, 192, 40, kBF16, kBF16});
    quantized_case(*ops, format, {300, 96, 20, kBF16, kBF16});
  }
}

// Shapes that a device gives to its kernel of a single row, and such as it does not.
TEST_P(OpSuite, QuantizedLinearOfOneRow) {
  for (const WeightFormat& format : formats_of(*ops)) {
    quantized_case(*ops, format, {1, 256, 8, kBF16, kBF16});
    quantized_case(*ops, format, {1, 768, 1064, kBF16, kBF16, true});
    quantized_case(*ops, format, {1, 9'472, 24, kBF16, kF32});
    quantized_case(*ops, format, {1, 512, 44, kBF16, kBF16, true});
  }
}

// Returns whether weights and activations are of block_wise_fp8 or, on a device, of fp8, for which
// the host has no kernels of their own.
bool is_float8_by_float8(const Ops& ops, const WeightFormat& format) {
  return format.input && format.input->dtype == DType::kF8E4M3 &&
         (format.input->scales == InputFormat::kGroups ||
          (format.input->scales == InputFormat::kToken && ops.device() != Device{}));
}

// So many rows that a device may unpack weights for them.
TEST_P(OpSuite, QuantizedLinearOfManyRows) {
  for (const WeightFormat& format : formats_of(*ops)) {
    if (!is_float8_by_float8(*ops, format)) continue;
    quantized_case(*ops, format, {515, 384, 304, kBF16, kBF16});
    quantized_case(*ops, format, {640, 200, 128, kBF16, kF32});
  }
}

// Elements of eight bits of shapes that a device may keep row by row.
TEST_P(OpSuite, QuantizedLinearOfWholeBlocks) {
  for (const WeightFormat& format : formats_of(*ops)) {
    if (!is_float8_by_float8(*ops, format)) continue;
    for (const int rows : {1, 2, 4, 7, 16, 33, 64, 65, 100, 129, 300})
      quantized_case(*ops, format, {rows, 384, 208, kBF16, kBF16});
    // A device may round so few rows where it multiplies them, up to some length.
    for (const auto& [rows, in] :
         {std::pair(1, 4'096), {1, 8'192}, {1, 8'320}, {3, 2'688}, {4, 2'176}})
      quantized_case(*ops, format, {rows, in, 144, kBF16, kBF16, true});
    for (const int rows : {3, 48, 130}) {
      quantized_case(*ops, format, {rows, 1'408, 16, kBF16, kF32, true});
      quantized_case(*ops, format, {rows, 128, 400, kF32, kF32});
    }
  }
}

// Inner dimensions that a device may cut into two to eight parts, equal or not, and rows in one job
// or several.
TEST_P(OpSuite, QuantizedLinearOfPartsOfColumns) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host does not cut them";
  for (const WeightFormat& format : formats_of(*ops)) {
    if (!is_float8_by_float8(*ops, format)) continue;
    for (const auto& [rows, in] :
         {std::pair(6, 512), {9, 2'048}, {30, 1'152}, {61, 640}, {70, 1'408}, {128, 2'176}})
      quantized_case(*ops, format, {rows, in, 144, kBF16, kBF16, true});
    for (const auto& [rows, in] : {std::pair(131, 1'024), {200, 2'048}})
      quantized_case(*ops, format, {rows, in, 272, kBF16, kBF16, true});
  }
}

TEST_P(OpSuite, QuantizedLinearOfLongRows) {
  for (const WeightFormat& format : formats_of(*ops)) {
    quantized_case(*ops, format, {1, 16'384, 3, kBF16, kF32});
    quantized_case(*ops, format, {3, 4'100, 18, kBF16, kBF16});
  }
}

TEST_P(OpSuite, QuantizedLinearOfReorderedColumns) {
  for (const WeightFormat& format : formats_of(*ops))
    for (const DType act : {kF32, kBF16})
      for (const int rows : {1, 3, 40})
        quantized_case(*ops, format, {rows, 256, 33, act, act, false, true});
}

void expect_linear_rows_independent(Ops& ops, const Tensor& out, const Tensor& x, const Linear& w) {
  expect_rows_independent(static_cast<int>(out.rows()), [&](int begin, int count) {
    const Tensor part = out.row_range(begin, count);
    ops.linear(part, x.row_range(begin, count), w);
    RowBytes rows;
    for (int r = 0; r < count; ++r) rows.push_back(row_bytes(part, r));
    return rows;
  });
}

// Rows alone, in pieces, and in another order give the same bits; and a row that is not a number
// leaves the others as they are.
TEST_P(OpSuite, QuantizedRowsAreIndependent) {
  constexpr int kRows = 45, kIn = 384, kOut = 80;
  for (const WeightFormat& format : formats_of(*ops)) {
    SCOPED_TRACE(describe(format));
    for (const DType act : {kF32, kBF16}) {
      if (!ops->batch_invariant()) continue;
      Workspace ws(7);
      const Tensor x = ws.random(act, {kRows, kIn}), out = ws.output(act, {kRows, kOut});
      const Linear plain = random_weight(ws, format, {.out = kOut, .in = kIn, .bias = true});
      Buffer owner;
      const Linear w = ops->prepare(plain, format, &owner);
      expect_linear_rows_independent(*ops, out, x, w);
      ops->linear(out, x, w);
      const std::vector<int32_t> shuffled = ws.rng.shuffled(kRows);
      const Tensor mixed = ws.output(act, {kRows, kIn}), met = ws.output(act, {kRows, kOut});
      ops->gather_rows(mixed, x, ws.ints(shuffled));
      put(mixed, 11, 5, NAN);
      ops->linear(met, mixed, w);
      finish();
      for (int r = 0; r < kRows; ++r) {
        if (r == 11) continue;
        EXPECT_EQ(row_bytes(met, r), row_bytes(out, shuffled[static_cast<size_t>(r)])) << r;
      }
    }
  }
}

// More rows than one job has, and inner dimensions that a device cuts.
TEST_P(OpSuite, ManyQuantizedRowsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() == Device{}) GTEST_SKIP() << "the host does not cut columns";
  for (const WeightFormat& format : formats_of(*ops)) {
    if (!is_float8_by_float8(*ops, format)) continue;
    SCOPED_TRACE(describe(format));
    Workspace ws(9);
    constexpr int kRows = 150, kIn = 2'048, kOut = 272;
    const Tensor x = ws.random(kBF16, {kRows, kIn}), out = ws.output(kBF16, {kRows, kOut});
    Buffer owner;
    const Linear w = ops->prepare(random_weight(ws, format, {.out = kOut, .in = kIn, .bias = true}),
                                  format, &owner);
    expect_linear_rows_independent(*ops, out, x, w);
  }
}

void quantized_gated_case(Ops& ops, const WeightFormat& format, int rows, int in, int width) {
  SCOPED_TRACE(fmt::format("{} rows {} in {} width {}", describe(format), rows, in, width));
  Workspace ws(static_cast<uint64_t>(rows));
  const Tensor x = ws.random(kBF16, {rows, in}, 0.2), out = ws.output(kBF16, {rows, width});
  const Linear plain = random_weight(ws, format, {.out = int64_t{2} * width, .in = in});
  Buffer owner;
  const Linear w = ops.prepare(plain, format, &owner);
  Arena arena(Buffer::pinned(1 << 20));
  ws.begin_op({out});
  ops.gated_linear(out, x, w, Act::kSilu, arena);
  ws.end_op();
  std::vector<std::vector<double>> met;
  met.reserve(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) met.push_back(rounded_input(row_of(x, r), plain, 0));
  expect_near(out, [&](int64_t r, int64_t c) {
    const std::vector<double>& row = met[static_cast<size_t>(r)];
    const bool device = ops.device() != Device{};
    return gated_output(quantized_product(row, plain, 0, c, device),
                        quantized_product(row, plain, 0, width + c, device));
  });
}

TEST_P(OpSuite, QuantizedGatedLinear) {
  for (const WeightFormat& format : formats_of(*ops)) {
    for (const auto& [rows, in] : {std::pair(1, 128), {9, 128}, {40, 128}, {1, 256}, {1, 1'536}})
      quantized_gated_case(*ops, format, rows, in, 40);
    if (!is_float8_by_float8(*ops, format)) continue;
    for (const auto& [rows, in] : {std::pair(1, 640),
                                   {1, 8'448},
                                   {3, 384},
                                   {4, 2'176},
                                   {12, 256},
                                   {47, 128},
                                   {52, 384},
                                   {130, 128}})
      quantized_gated_case(*ops, format, rows, in, 256);
    if (ops->device() == Device{}) continue;
    for (const auto& [rows, in] : {std::pair(60, 2'048), {120, 1'152}})
      quantized_gated_case(*ops, format, rows, in, 144);
  }
}

}  // namespace
}  // namespace skiff::suite
