// grammar/number_range.h -- JSON numbers between bounds, and multiples.
#pragma once
#include <optional>
#include <string>

#include "grammar/expr.h"

namespace skiff::grammar {

// A decimal number: digits without needless zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
  // Reads the text of a JSON number. Throws Refusal where it has more than 400 digits.
  static Decimal parse(std::string_view text);
  bool zero() const { return whole == "0" && fraction.empty(); }
};
// Returns -1 where x is less than y, 0 where they are equal, and 1 where x is greater.
int compare(const Decimal& x, const Decimal& y);

struct Bound {
  Decimal value;
  bool exclusive = false;
};

struct NumberRange {
  std::optional<Bound> low, high;
  bool narrowed = false;  // values beyond these bounds may be meant, too
  bool bounded() const { return low || high; }
  bool holds(const Decimal& value) const;
};

// Returns an expression for the integers of the range, written without fraction and exponent;
// kNothing if there is none.
ExprId integers_in(ExprSet& exprs, const NumberRange& range);
// Returns an expression for the numbers of the range, written without exponent.
ExprId numbers_in(ExprSet& exprs, const NumberRange& range);
// Returns an expression for the integers that `modulus` divides; with `fraction` they may be
// written with zeros behind a point.
ExprId multiples_of(ExprSet& exprs, uint32_t modulus, bool fraction);
// Returns an expression for the numbers with at most `digits` digits behind the point, not counting
// zeros at the end.
ExprId numbers_of_digits(ExprSet& exprs, uint32_t digits);

}  // namespace skiff::grammar
