#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

// A double has fewer significant digits.
constexpr int kMaxPrecision = 1000;

bool is_one_of(char c, std::string_view set) { return c && set.find(c) != set.npos; }

std::string repeated(std::string_view piece, size_t n) {
  std::string out;
  for (; n > 0; --n) out += piece;
  return out;
}

std::string upper_ascii(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return text;
}

// Separators between groups of the digits before the point. Zeros that fill up to `width` are
// grouped like other digits.
std::string grouped(const std::string& digits, char separator, size_t group, size_t width) {
  const char* const set = group == 4 ? "0123456789abcdefABCDEF" : "0123456789";
  const size_t point = std::min(digits.find_first_not_of(set), digits.size());
  std::string whole = digits.substr(0, point), out;
  const std::string rest = digits.substr(point);
  const auto length = [&](size_t n) { return n + (n - 1) / group + rest.size(); };
  size_t n = whole.size();
  while (length(n) < width) ++n;
  whole.insert(0, n - whole.size(), '0');
  for (size_t i = 0; i < whole.size(); ++i) {
    if (i > 0 && (whole.size() - i) % group == 0) out += separator;
    out += whole[i];
  }
  return out + rest;
}

[[noreturn]] void unknown_type(char type, const Value& value) {
  fail("unknown format code '{}' for object of type '{}'", type, type_name(value));
}

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') == text.npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Without a type but with a precision: like 'g', but with at least one digit behind the point and
// an exponent from 10^(precision - 1) on.
std::string short_float(double magnitude, int precision) {
  if (!std::isfinite(magnitude)) return fmt::format("{}", magnitude);
  precision = std::clamp(precision, 1, kMaxPrecision);
  const std::string text = fmt::format("{:.{}e}", magnitude, precision - 1);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent + 1 > precision - 1)
    return without_trailing_zeros(text.substr(0, e)) + text.substr(e);
  const int decimals = std::max(precision - 1 - exponent, 0);
  const std::string fixed = without_trailing_zeros(fmt::format("{:.{}f}", magnitude, decimals));
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

std::string format_float(Budget& budget, const Value& value, const FormatSpec& spec) {
  double d = 0;
  is_number(value, &d);
  std::string digits;
  const double magnitude = std::abs(d);
  if (!spec.type && spec.precision < 0)
    digits = float_repr(magnitude);
  else if (!spec.type)
    digits = short_float(magnitude, spec.precision);
  else if (is_one_of(spec.type, "eEfFgGn%"))
    digits =
        float_digits(magnitude, spec.type == 'n' ? 'g' : spec.type, spec.precision, spec.alternate);
  else
    unknown_type(spec.type, value);
  return padded_number(budget, std::signbit(d), "", std::move(digits), spec);
}

std::string format_integer(Budget& budget, const Value& value, int64_t i, const FormatSpec& spec) {
  if (is_one_of(spec.type, "eEfFgG%")) return format_float(budget, value, spec);
  if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000)) fail("{} is not a character", i);
    std::string out;
    utf8_append(out, static_cast<char32_t>(i));
    FormatSpec text = spec;
    if (!text.align) text.align = '<';
    return padded_text(budget, std::move(out), text);
  }
  int base = 10;
  if (spec.type == 'b') base = 2;
  if (spec.type == 'o') base = 8;
  if (spec.type == 'x' || spec.type == 'X') base = 16;
  if (base == 10 && spec.type && spec.type != 'd' && spec.type != 'n')
    unknown_type(spec.type, value);
  if (spec.grouping == ',' && base != 10) fail("cannot specify ',' with '{}'", spec.type);
  std::string prefix, digits = integer_digits(i, base);
  if (spec.alternate && base != 10) prefix = {'0', spec.type};
  if (spec.type == 'X') digits = upper_ascii(std::move(digits));
  return padded_number(budget, i < 0, prefix, std::move(digits), spec);
}

std::string format_text(Budget& budget, const Value& value, const FormatSpec& spec) {
  if (spec.type && spec.type != 's') unknown_type(spec.type, value);
  if (spec.sign != '-' || spec.alternate || spec.align == '=' || spec.grouping)
    fail("a sign, '#', '=' or ',' is not allowed in the format of a text");
  std::string text = to_text(budget, value);
  if (spec.precision >= 0) text.resize(character_offset(text, static_cast<size_t>(spec.precision)));
  return padded_text(budget, std::move(text), spec);
}

}  // namespace

size_t format_number(std::string_view text, size_t* at) {
  size_t n = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    n = n * 10 + static_cast<size_t>(text[*at] - '0');
    if (n > kMaxFormatWidth) fail("a format with a number above {}", kMaxFormatWidth);
  }
  return n;
}

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto next = [&] { return at < text.size() ? text[at] : '\0'; };
  const size_t first = text.empty() ? 0 : character_length(text);
  bool filled = false;
  if (first < text.size() && is_one_of(text[first], "<>=^")) {
    spec.fill = text.substr(0, first);
    at = first;
    filled = true;
  }
  if (is_one_of(next(), "<>=^")) spec.align = text[at++];
  if (is_one_of(next(), "+- ")) spec.sign = text[at++];
  if (next() == '#') spec.alternate = true, ++at;
  if (next() == '0') {
    if (!filled) spec.fill = "0";
    if (!filled && !spec.align)
      spec.align = '0';  // a leading 0 means '=' for numbers and the default for texts
    ++at;
  }
  spec.width = format_number(text, &at);
  if (is_one_of(next(), ",_")) spec.grouping = text[at++];
  if (next() == '.') {
    const size_t digits = ++at;
    spec.precision = static_cast<int>(format_number(text, &at));
    if (at == digits) fail("format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("invalid format specifier '{}'", excerpt(text));
  return spec;
}

std::string format_value(Budget& budget, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(budget, value);
  FormatSpec spec = parse_format_spec(text);
  int64_t i = 0;
  const bool number = is_integral(value, &i) || value.as_float();
  if (spec.align == '0') spec.align = number ? '=' : '\0';
  if (value.as_float()) return format_float(budget, value, spec);
  if (number) return format_integer(budget, value, i, spec);
  if (!value.is_text()) fail("unsupported format string passed to {}.__format__", type_name(value));
  return format_text(budget, value, spec);
}

std::string integer_digits(int64_t value, int base) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (base == 2) return fmt::format("{:b}", magnitude);
  if (base == 8) return fmt::format("{:o}", magnitude);
  return base == 16 ? fmt::format("{:x}", magnitude) : std::to_string(magnitude);
}

std::string float_digits(double magnitude, char type, int precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (precision < 0) precision = 6;
  if (precision > kMaxPrecision) fail("a format with a precision above {}", kMaxPrecision);
  std::string out;
  switch (type) {
    case 'e':
    case 'E':
      out = alternate ? fmt::format("{:#.{}e}", magnitude, precision)
                      : fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'g':
    case 'G':
      out = alternate ? fmt::format("{:#.{}g}", magnitude, precision)
                      : fmt::format("{:.{}g}", magnitude, precision);
      break;
    case '%':
      out = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    default:
      out = alternate ? fmt::format("{:#.{}f}", magnitude, precision)
                      : fmt::format("{:.{}f}", magnitude, precision);
  }
  return upper ? upper_ascii(std::move(out)) : out;
}

std::string padded_number(Budget& budget, bool negative, const std::string& prefix,
                          std::string digits, const FormatSpec& spec) {
  std::string head = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  head += prefix;
  budget.make(head.size() + 2 * digits.size() + spec.width * spec.fill.size());
  if (spec.grouping) {
    const bool zeros = spec.align == '=' && spec.fill == "0" && spec.width > head.size();
    const size_t group = is_one_of(spec.type, "boxX") ? 4 : 3;
    digits = grouped(digits, spec.grouping, group, zeros ? spec.width - head.size() : 0);
  }
  const size_t n = head.size() + digits.size();
  if (spec.align == '=' && n < spec.width)
    return head + repeated(spec.fill, spec.width - n) + digits;
  FormatSpec aligned = spec;
  if (!aligned.align) aligned.align = '>';
  return padded_text(budget, head + digits, aligned);
}

std::string padded_text(Budget& budget, std::string text, const FormatSpec& spec) {
  const size_t n = count_characters(text);
  if (n >= spec.width) return text;
  const size_t missing = spec.width - n;
  budget.make(text.size() + missing * spec.fill.size());
  const size_t before = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  return repeated(spec.fill, before) + text + repeated(spec.fill, missing - before);
}

}  // namespace skiff::jinja
