#include "grammar/number_range.h"

#include <charconv>

#include "grammar/digit_span.h"
#include "grammar/refusal.h"

namespace skiff::grammar {
namespace {

ExprId digits(ExprSet& exprs, uint32_t min) {
  return exprs.repeat(exprs.byte_range('0', '9'), min, kEndless);
}

std::vector<int> digits_of(const std::string& text) {
  std::vector<int> out;
  for (const char c : text) out.push_back(c - '0');
  return out;
}

// Whole numbers between two of the same number of digits, as far as `low` <= `high`.
ExprId span(ExprSet& exprs, const std::string& low, const std::string& high) {
  if (low > high) return kNothing;
  const auto leaf = [&](int from, int to) { return exprs.byte_range('0' + from, '0' + to); };
  return digit_span(exprs, digits_of(low), digits_of(high), 0, 9, leaf);
}

// Whole numbers >= `low` and, where it is given, <= `high`.
ExprId wholes(ExprSet& exprs, const std::string& low, const std::string* high) {
  const auto smallest = [](size_t size) {
    return size == 1 ? std::string("0") : "1" + std::string(size - 1, '0');
  };
  std::vector<ExprId> parts;
  for (size_t size = low.size(); !high || size <= high->size(); ++size) {
    const std::string from = size == low.size() ? low : smallest(size);
    if (!high && size > low.size()) {
      parts.push_back(exprs.concat(exprs.byte_range('1', '9'),
                                   digits(exprs, static_cast<uint32_t>(low.size()))));
      break;
    }
    parts.push_back(
        span(exprs, from, high && size == high->size() ? *high : std::string(size, '9')));
  }
  return exprs.alt(std::move(parts));
}

std::string successor(std::string whole) {
  for (auto it = whole.rbegin(); it != whole.rend(); ++it) {
    if (*it != '9') return ++*it, whole;
    *it = '0';
  }
  return "1" + whole;
}

// `whole` is not "0".
std::string predecessor(std::string whole) {
  for (auto it = whole.rbegin(); it != whole.rend(); ++it) {
    if (*it != '0') {
      --*it;
      break;
    }
    *it = '9';
  }
  return whole.size() > 1 && whole[0] == '0' ? whole.substr(1) : whole;
}

ExprId digit(ExprSet& exprs, int low, int high) {
  return low > high ? kNothing : exprs.byte_range('0' + low, '0' + high);
}

// Returns an expression for what may follow the whole part of `bound` in numbers that are at least
// `bound`, or above it where it is exclusive.
ExprId fraction_above(ExprSet& exprs, const Bound& bound) {
  const std::string& f = bound.value.fraction;
  const ExprId any = digits(exprs, 0);
  const ExprId positive = exprs.concat({any, exprs.byte_range('1', '9'), any});
  ExprId rest = bound.exclusive ? positive : any;
  if (f.empty())
    return bound.exclusive ? exprs.concat(exprs.literal("."), positive)
                           : exprs.optional(exprs.concat(exprs.literal("."), digits(exprs, 1)));
  for (size_t i = f.size(); i-- > 0;)
    rest = exprs.alt({exprs.concat(digit(exprs, f[i] - '0' + 1, 9), any),
                      exprs.concat(digit(exprs, f[i] - '0', f[i] - '0'), rest)});
  return exprs.concat(exprs.literal("."), rest);
}

ExprId fraction_below(ExprSet& exprs, const Bound& bound) {
  const std::string& f = bound.value.fraction;
  const ExprId any = digits(exprs, 0);
  const ExprId zeros = exprs.repeat(exprs.literal("0"), 0, kEndless);
  if (f.empty()) {
    if (bound.exclusive) return kNothing;
    return exprs.optional(exprs.concat({exprs.literal("."), exprs.literal("0"), zeros}));
  }
  // What may follow once all digits of the bound have been written.
  ExprId rest = bound.exclusive ? kNothing : zeros;
  for (size_t i = f.size(); i-- > 0;) {
    rest = exprs.alt({exprs.concat(digit(exprs, 0, f[i] - '0' - 1), any),
                      exprs.concat(digit(exprs, f[i] - '0', f[i] - '0'), rest)});
    if (i > 0) rest = exprs.alt({kEmpty, rest});  // a digit has been written: it may end below
  }
  return exprs.optional(exprs.concat(exprs.literal("."), rest));
}

// Numbers >= 0 between bounds that are >= 0.
ExprId magnitudes(ExprSet& exprs, const Bound& low, const std::optional<Bound>& high) {
  const ExprId fraction = exprs.optional(exprs.concat(exprs.literal("."), digits(exprs, 1)));
  std::vector<ExprId> parts;
  parts.push_back(
      exprs.alt({exprs.concat(wholes(exprs, successor(low.value.whole), nullptr), fraction),
                 exprs.concat(exprs.literal(low.value.whole), fraction_above(exprs, low))}));
  if (high) {
    ExprId below = kNothing;
    if (high->value.whole != "0") {
      const std::string most = predecessor(high->value.whole);
      below = exprs.concat(wholes(exprs, "0", &most), fraction);
    }
    parts.push_back(exprs.alt(
        {below, exprs.concat(exprs.literal(high->value.whole), fraction_below(exprs, *high))}));
  }
  return exprs.both(std::move(parts));
}

Bound mirrored(Bound bound) {
  bound.value.negative = !bound.value.negative && !bound.value.zero();
  return bound;
}

// ceiling() returns the least integer that meets a lower bound >= 0, floor_of() the greatest that
// meets an upper one, or nothing where no integer >= 0 does.
std::string ceiling(const Bound& bound) {
  return bound.value.fraction.empty() && !bound.exclusive ? bound.value.whole
                                                          : successor(bound.value.whole);
}
std::optional<std::string> floor_of(const Bound& bound) {
  if (!bound.value.fraction.empty() || !bound.exclusive) return bound.value.whole;
  if (bound.value.whole == "0") return std::nullopt;
  return predecessor(bound.value.whole);
}

ExprId whole_magnitudes(ExprSet& exprs, const Bound& low, const std::optional<Bound>& high) {
  const std::string from = ceiling(low);
  if (!high) return wholes(exprs, from, nullptr);
  const auto to = floor_of(*high);
  if (!to || from.size() > to->size()) return kNothing;
  return wholes(exprs, from, &*to);
}

using Magnitudes = ExprId (*)(ExprSet&, const Bound&, const std::optional<Bound>&);

// Joins the numbers with and without a sign.
ExprId signed_range(ExprSet& exprs, const NumberRange& range, Magnitudes magnitudes) {
  const auto part = [&](const std::optional<Bound>& low, const std::optional<Bound>& high) {
    if (high && high->value.negative) return kNothing;
    const bool from_zero = !low || low->value.negative;
    return magnitudes(exprs, from_zero ? Bound{} : *low, high);
  };
  const auto mirror = [](const std::optional<Bound>& bound) {
    return bound ? std::optional<Bound>(mirrored(*bound)) : std::nullopt;
  };
  const ExprId positive = part(range.low, range.high);
  const ExprId negative = part(mirror(range.high), mirror(range.low));
  return exprs.alt({positive, exprs.concat(exprs.literal("-"), negative)});
}

int compare_magnitudes(const Decimal& x, const Decimal& y) {
  if (x.whole.size() != y.whole.size()) return x.whole.size() < y.whole.size() ? -1 : 1;
  if (const int c = x.whole.compare(y.whole); c != 0) return c < 0 ? -1 : 1;
  const int c = x.fraction.compare(y.fraction);
  return c == 0 ? 0 : c < 0 ? -1 : 1;
}

}  // namespace

Decimal Decimal::parse(std::string_view text) {
  constexpr int kMaxDigits = 400;
  Decimal out;
  out.negative = text.starts_with('-');
  if (out.negative) text.remove_prefix(1);
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string_view power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const auto got = std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (got.ec != std::errc()) refuse("the number {} is out of range", text);
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string all(text.substr(0, point));
  all += text.substr(std::min(point + 1, text.size()));
  const int64_t place = static_cast<int64_t>(point) + exponent;  // where the point stands in `all`
  if (place > kMaxDigits || place < -kMaxDigits) refuse("the number {} is out of range", text);
  if (place < 0) all.insert(0, static_cast<size_t>(-place), '0');
  const auto split = static_cast<size_t>(std::max<int64_t>(place, 0));
  if (all.size() < split) all.append(split - all.size(), '0');
  out.whole = all.substr(0, split);
  out.fraction = all.substr(split);
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  out.negative = out.negative && !out.zero();
  return out;
}

int compare(const Decimal& x, const Decimal& y) {
  if (x.negative != y.negative) return x.negative ? -1 : 1;
  return x.negative ? compare_magnitudes(y, x) : compare_magnitudes(x, y);
}

bool NumberRange::holds(const Decimal& value) const {
  if (low && compare(value, low->value) < (low->exclusive ? 1 : 0)) return false;
  return !high || compare(value, high->value) <= (high->exclusive ? -1 : 0);
}

ExprId integers_in(ExprSet& exprs, const NumberRange& range) {
  return signed_range(exprs, range, whole_magnitudes);
}

ExprId numbers_in(ExprSet& exprs, const NumberRange& range) {
  return signed_range(exprs, range, magnitudes);
}

ExprId multiples_of(ExprSet& exprs, uint32_t modulus, bool fraction) {
  const ExprId zeros =
      exprs.concat(exprs.literal("."), exprs.repeat(exprs.literal("0"), 1, kEndless));
  return exprs.concat({exprs.optional(exprs.literal("-")), exprs.residue(modulus, 0),
                       fraction ? exprs.optional(zeros) : kEmpty});
}

ExprId numbers_of_digits(ExprSet& exprs, uint32_t digits) {
  const ExprId digit = exprs.byte_range('0', '9');
  const ExprId fraction = exprs.both({exprs.repeat(digit, 1, kEndless),
                                      exprs.concat(exprs.repeat(digit, 0, digits),
                                                   exprs.repeat(exprs.literal("0"), 0, kEndless))});
  return exprs.concat({exprs.optional(exprs.literal("-")), exprs.repeat(digit, 1, kEndless),
                       exprs.optional(exprs.concat(exprs.literal("."), fraction))});
}

}  // namespace skiff::grammar
