// grammar/digit_span.h -- the words of n digits between two such words, as an expression.
#pragma once
#include <functional>
#include <vector>

#include "grammar/expr.h"

namespace skiff::grammar {

// `leaf(low, high)` is the expression of one digit in [low, high]; a digit that no bound touches is
// in [min, max]. `low` and `high` have the same length, and low <= high.
ExprId digit_span(ExprSet& exprs, const std::vector<int>& low, const std::vector<int>& high,
                  int min, int max, const std::function<ExprId(int, int)>& leaf);

}  // namespace skiff::grammar
