// Products of integers with integers. Sums of 32 bits are exact, so neither the instruction set nor
// the cut of a product shows in them; each is rounded once, where it becomes a float.
#include <algorithm>

#include "base/round_up.h"
#include "ops/cpu/backend.h"

namespace skiff::cpu {
namespace {

// Sums of that many products of 255 and 128 fit into 31 bits.
constexpr int64_t kMostExact = 65'536;

}  // namespace

std::vector<IntegerPiece> integer_pieces(const CodeShape& shape) {
  const int64_t scales = input_groups(shape);
  const int64_t most = scales > 1 ? InputFormat::kGroup : kMostExact;
  std::vector<IntegerPiece> pieces;
  for (int64_t g = 0; g < shape.groups(); ++g)
    for (int64_t i = 0; i < shape.group_size(g); i += most) {
      const int64_t column = shape.group_begin(g) + i;
      const int64_t inputs = std::min(most, shape.group_size(g) - i);
      pieces.push_back(
          {.column = column,
           .size = inputs,
           .sum = {.begin = spread_begin(shape, g, shape.line_inputs()) + i,
                   .line = shape.line(g) + i / shape.line_inputs(),
                   .lines = round_up(inputs, shape.line_inputs()) / shape.line_inputs(),
                   .group = g,
                   .value = scales > 1 ? column / InputFormat::kGroup : 0,
                   .inputs = scales + std::ssize(pieces)}});
    }
  return pieces;
}

std::vector<CodeSum> sums_of(const std::vector<IntegerPiece>& pieces) {
  std::vector<CodeSum> sums;
  sums.reserve(pieces.size());
  for (const IntegerPiece& piece : pieces) sums.push_back(piece.sum);
  return sums;
}

Operand CpuOps::integer_operand(const CodeShape& shape) const {
  constexpr int64_t kLine = 64;  // bytes
  const int64_t step = shape.line_inputs(), width = kernels_.int_bytes;
  return {.stride = round_up(spread_inputs(shape, step), kLine / width) + kLine / width,
          .integers = true,
          .width = width,
          .step = step,
          .value_stride = input_groups(shape) + std::ssize(integer_pieces(shape))};
}

// A piece is written in whole vectors, the end of which the next piece takes, or the row's padding.
void CpuOps::fill_integers(const CodeRow& to, const Operand& a, const CodeShape& shape) const {
  for (const IntegerPiece& piece : integer_pieces(shape)) {
    const int32_t sum =
        kernels_.write_integers(to.row + piece.sum.begin * a.width, to.x + piece.column, piece.size,
                                is_nibble(codes_of(shape.format.dtype)));
    to.values[piece.sum.inputs] = static_cast<float>(sum);
  }
}

}  // namespace skiff::cpu
