// Implements Python's arithmetic on 64-bit integers, where an overflow is an error.
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"

namespace skiff::jinja {
namespace {

[[noreturn]] void overflow() { fail("an integer does not fit into 64 bits"); }

const char* symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kFloorDiv:
      return "//";
    case BinaryOp::kMod:
      return "%";
    default:
      return "**";
  }
}

int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == INT64_MIN) overflow();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integers(BinaryOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool too_large = false;
  switch (op) {
    case BinaryOp::kAdd:
      too_large = __builtin_add_overflow(a, b, &out);
      break;
    case BinaryOp::kSub:
      too_large = __builtin_sub_overflow(a, b, &out);
      break;
    case BinaryOp::kMul:
      too_large = __builtin_mul_overflow(a, b, &out);
      break;
    case BinaryOp::kDiv:
      if (b == 0) fail("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOp::kFloorDiv:
      return floor_divided(a, b);
    case BinaryOp::kMod:
      return b == -1 ? Value(int64_t{0}) : Value(a - floor_divided(a, b) * b);
    default:
      return power(a, b);
  }
  if (too_large) overflow();
  return out;
}

// The quotient is derived from the remainder, which fmod computes exactly: 1.0 // 0.1 is 9.0.
struct FloatDivision {
  double quotient, rest;
};
FloatDivision float_division(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0) rest = std::copysign(0.0, b);
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, rest};
}

double float_power(double a, double b) {
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    fail("complex numbers are not supported");
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    fail("numerical result out of range");
  return result;
}

Value floats(BinaryOp op, double a, double b) {
  const bool divides = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv || op == BinaryOp::kMod;
  if (divides && b == 0) fail("float division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kFloorDiv:
      return float_division(a, b).quotient;
    case BinaryOp::kMod:
      return float_division(a, b).rest;
    default:
      return float_power(a, b);
  }
}

Value repeated(Interpreter& in, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const auto n = static_cast<uint64_t>(times);
  if (const std::string* text = value.as_text()) {
    in.budget().make_many(n, text->size());
    if (text->empty()) return value;
    std::string out;
    out.reserve(n * text->size());
    for (uint64_t i = 0; i < n; ++i) out += *text;
    return Value(std::move(out), value.is_markup());
  }
  const Seq& seq = *value.as_seq();
  in.budget().make_many(n, seq.items.size() * sizeof(Value));
  Values items;
  for (uint64_t i = 0; i < n && !seq.items.empty(); ++i)
    items.insert(items.end(), seq.items.begin(), seq.items.end());
  return Value::seq(in.budget(), seq.form, std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is_text() || (value.as_seq() && value.as_seq()->form <= Seq::Form::kTuple);
}

Value added_texts(Interpreter& in, const Value& a, const Value& b) {
  const bool markup = a.is_markup() || b.is_markup();
  const auto part = [&](const Value& v) {
    return markup && !v.is_markup() ? escaped(in.budget(), *v.as_text()) : *v.as_text();
  };
  in.budget().make(a.as_text()->size() + b.as_text()->size());
  return Value(part(a) + part(b), markup);
}

}  // namespace

Value binary_operation(Interpreter& in, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail("{}", a.undefined_reason());
  in.budget().step(steps_to_read(a) + steps_to_read(b));
  int64_t i, j;
  if (is_integral(a, &i) && is_integral(b, &j)) return integers(op, i, j);
  if (a.as_wide() || (b.as_wide() && !a.is_text())) overflow();
  double x, y;
  if (is_number(a, &x) && is_number(b, &y)) return floats(op, x, y);
  if (op == BinaryOp::kMod && a.is_text()) return percent_format(in.budget(), *a.as_text(), b);
  if (b.is_undefined()) fail("{}", b.undefined_reason());
  if (op == BinaryOp::kAdd && a.is_text() && b.is_text()) return added_texts(in, a, b);
  const Seq *s = a.as_seq(), *t = b.as_seq();
  if (op == BinaryOp::kAdd && s && t && s->form == t->form && is_repeatable(a)) {
    in.budget().make_many(s->items.size() + t->items.size(), sizeof(Value));
    Values items = s->items;
    items.insert(items.end(), t->items.begin(), t->items.end());
    return Value::seq(in.budget(), s->form, std::move(items));
  }
  if (op == BinaryOp::kMul && is_repeatable(a) && is_integral(b, &j)) return repeated(in, a, j);
  if (op == BinaryOp::kMul && is_repeatable(b) && is_integral(a, &i)) return repeated(in, b, i);
  if (op == BinaryOp::kAdd && a.is_text())
    fail("can only concatenate str (not \"{}\") to str", type_name(b));
  fail("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Value negated(const Value& value) {
  if (const double* d = value.as_float()) return -*d;
  if (const uint64_t* u = value.as_wide()) {
    if (*u > uint64_t{1} << 63) overflow();
    return INT64_MIN;
  }
  int64_t i;
  if (!is_integral(value, &i)) fail("bad operand type for unary -: '{}'", type_name(value));
  if (i == INT64_MIN) overflow();
  return -i;
}

}  // namespace skiff::jinja
