// ops/cpu/quantized.h -- how products with quantized weights are cut along their inputs.
#pragma once
#include <vector>

#include "ops/cpu/code_panels.h"

namespace skiff::cpu {

// Consecutive inputs of a product, at most kSpan. Spans whose codes and activations share a scale
// make one sum in the order of the inputs, which the last of them closes: it is multiplied by its
// scales and added to the result.
constexpr int64_t kSpan = 256;
struct Span {
  int64_t begin = 0, length = 0;  // a part of the operand, in whole lines
  // Lines of a panel; where they are fewer than `length` needs, the rest is zero.
  int64_t line = 0, lines = 0;
  int64_t group = 0;        // the weight's group
  int64_t input_group = 0;  // the group of the activations
  bool opens = false, closes = false;
};
// `step` is what a span's length must be a multiple of.
std::vector<Span> spans_of(const CodeShape& shape, int64_t step);
// The sums that they make.
std::vector<CodeSum> sums_of(const CodeShape& shape, const std::vector<Span>& spans);

// Consecutive columns of a product of integers that make one sum.
struct IntegerPiece {
  int64_t column = 0, size = 0;
  CodeSum sum;
};
std::vector<IntegerPiece> integer_pieces(const CodeShape& shape);
std::vector<CodeSum> sums_of(const std::vector<IntegerPiece>& pieces);

// The operand's inputs: `in`, or more where groups are spread or a row is filled up to a step.
int64_t spread_inputs(const CodeShape& shape, int64_t step);
// Where a group begins in the operand.
int64_t spread_begin(const CodeShape& shape, int64_t group, int64_t step);
// The scales of one row of activations.
int64_t input_groups(const CodeShape& shape);

// Returns whether blocks of the weight and groups of the activations nest, so that each sum has one
// scale of both.
bool nests(const WeightFormat& format);

}  // namespace skiff::cpu
