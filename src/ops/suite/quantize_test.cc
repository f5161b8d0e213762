// quantize(): elements and scales, bit for bit, of every rule.
#include <algorithm>
#include <cstring>

#include "ops/suite/suite.h"
#include "weights/codes.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

struct QuantizeCase {
  QuantRule rule;
  WeightFormat format;
};
const QuantizeCase kCases[] = {
    {QuantRule::kPaddle, {DType::kI8, 1, 0, kBF16}},
    {QuantRule::kPaddle, {DType::kI4, 1, 0, kBF16}},
    {QuantRule::kPaddle, {DType::kI4, 1, 0, kF32, {}, InputFormat{DType::kI8}}},
    {QuantRule::kAbsMax, {DType::kI8, 1, 0, kF32}},
    {QuantRule::kAbsMax, {DType::kI8, 1, 0, kF32, {}, InputFormat{}}},
    {QuantRule::kAbsMax, {DType::kI8, 1, 128, kBF16}},
    {QuantRule::kAbsMax, {DType::kI4, 1, 128, kBF16}},
    {QuantRule::kSignedExtreme, {DType::kI4, 1, 0, kBF16}},
    {QuantRule::kSignedExtreme, {DType::kI4, 1, 64, kBF16}},
    {QuantRule::kSignedExtreme, {DType::kI4, 1, 128, kBF16}},
    {QuantRule::kFloat8, {DType::kF8E4M3, 1, 0, kF32}},
    {QuantRule::kFloat8, {DType::kF8E4M3, 0, 0, kF32}},
    {QuantRule::kFloat8,
     {DType::kF8E4M3, 1, 0, kF32, {}, InputFormat{DType::kF8E4M3, InputFormat::kToken}}},
    {QuantRule::kFloat8, {DType::kF8E4M3, 128, 128, kF32}},
    {QuantRule::kFloat8,
     {DType::kF8E4M3, 128, 128, kF32, {}, InputFormat{DType::kF8E4M3, InputFormat::kGroups}}},
};

struct Expected {
  double scale;                           // as stored
  std::function<double(double)> element;  // the element that a value becomes
};

// The rules of weights/quant_rule.h, for a block of values; float32 arithmetic where it shows.
Expected expected(const QuantizeCase& c, const std::vector<float>& block) {
  float most = 0, extreme = 0;
  for (const float v : block) {
    most = std::max(most, std::abs(v));
    if (std::abs(v) > std::abs(extreme) || (std::abs(v) == std::abs(extreme) && v > 0)) extreme = v;
  }
  const bool four = c.format.dtype == DType::kI4;
  float scale = 0, low = 0, high = 0;
  switch (c.rule) {
    case QuantRule::kPaddle:
      high = four ? 7 : 127, low = -high, scale = most / high;
      break;
    case QuantRule::kAbsMax:
      high = four ? 7 : 127, low = four ? -8 : -127, scale = most / (four ? 7.5f : 127.0f);
      break;
    case QuantRule::kSignedExtreme:
      high = 7, low = -8, scale = extreme / -8;
      break;
    case QuantRule::kFloat8:
      scale = most / 448;
      break;
  }
  const auto stored = static_cast<float>(rounded(scale, *c.format.scale));
  if (stored == 0) return {1, [](double) { return 0; }};
  const float divisor = c.rule == QuantRule::kPaddle ? scale : stored;
  return {stored, [=](double value) -> double {
            const float quotient = static_cast<float>(value) / divisor;
            if (c.rule == QuantRule::kFloat8) return from_e4m3(to_e4m3(quotient));
            const float whole =
                c.rule == QuantRule::kPaddle ? std::round(quotient) : std::nearbyint(quotient);
            return std::clamp(whole, low, high);
          }};
}

// Values of every kind of block: of zeros, with one that is far from the others, with two of equal
// size, tiny ones, and ties.
void spice(Workspace& ws, const Tensor& plain) {
  const int rows = static_cast<int>(plain.rows()), cols = static_cast<int>(plain.cols());
  for (int i = 0; i < cols; ++i) put(plain, 0, i, 0);
  for (int i = 0; i < cols; ++i) put(plain, rows / 2, i, (i % 31 - 15) * 0.5);
  for (int n = 0; n < 5; ++n) put(plain, ws.rng.below(rows), ws.rng.below(cols), 1000);
  put(plain, rows - 1, 0, -9), put(plain, rows - 1, cols - 1, 9);
  for (int i = 0; i < cols; ++i) put(plain, rows / 3, i, i % 2 ? 0x1p-20 : -0x1p-21);
}

void quantize_case(Ops& ops, const QuantizeCase& c, int rows, int cols, DType from) {
  SCOPED_TRACE(fmt::format("{} by rule {}: {} x {} from {}", describe(c.format),
                           static_cast<int>(c.rule), rows, cols, name(from)));
  Workspace ws(static_cast<uint64_t>(rows + cols));
  const Tensor plain = ws.random(from, {rows, cols});
  spice(ws, plain);
  const int block_out = c.format.block_out ? c.format.block_out : rows;
  const int block_in = c.format.block_in ? c.format.block_in : cols;
  const int64_t block_rows = num_blocks(rows, c.format.block_out);
  const int64_t block_cols = num_blocks(cols, c.format.block_in);
  const int64_t size = static_cast<int64_t>(byte_size(c.format.dtype, int64_t{rows} * cols));
  Linear q{.format = c.format};
  q.weight = host_tensor(ws.output(DType::kU8, {size}).data, c.format.dtype, {rows, cols});
  q.scale = ws.output(*c.format.scale, {block_rows, block_cols});
  ws.begin_op({host_tensor(q.weight.data, DType::kU8, {1, size}), q.scale});
  // In bands, as checkpoints are read, where rows of blocks allow it.
  const int band = c.format.block_out ? 128 : rows;
  for (int r = 0; r < rows; r += band) {
    const int count = std::min(band, rows - r);
    Linear part = q;
    part.weight = q.weight.row_range(r, count);
    part.scale = q.scale.row_range(r / block_out, (count + block_out - 1) / block_out);
    ops.quantize(part, plain.row_range(r, count), c.rule);
  }
  ops.wait(ops.mark());
  ws.end_op();
  for (int r0 = 0; r0 < rows; r0 += block_out)
    for (int c0 = 0; c0 < cols; c0 += block_in) {
      std::vector<float> block;
      for (int r = r0; r < std::min(rows, r0 + block_out); ++r)
        for (int i = c0; i < std::min(cols, c0 + block_in); ++i)
          block.push_back(static_cast<float>(at(plain, r, i)));
      const Expected want = expected(c, block);
      ASSERT_EQ(at(q.scale, r0 / block_out, c0 / block_in), want.scale) << r0 << ", " << c0;
      for (int r = r0; r < std::min(rows, r0 + block_out); ++r)
        for (int i = c0; i < std::min(cols, c0 + block_in); ++i)
          ASSERT_EQ(code_value(q.weight.data, c.format.dtype, int64_t{r} * cols + i),
                    want.element(at(plain, r, i)))
              << r << ", " << i << ": " << at(plain, r, i);
    }
}

TEST_P(OpSuite, QuantizesByEveryRule) {
  for (const QuantizeCase& c : kCases) {
    if (!ops->multiplies(c.format)) continue;
    for (const DType from : {kF32, kF16, kBF16}) {
      quantize_case(*ops, c, 257, 130, from);
      quantize_case(*ops, c, 7, 1000, from);
    }
    quantize_case(*ops, c, 128, 64, kBF16);
    quantize_case(*ops, c, 130, 384, kBF16);
    quantize_case(*ops, c, 3, 2, kF32);
  }
}

}  // namespace
}  // namespace skiff::suite
