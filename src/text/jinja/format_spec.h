// text/jinja/format_spec.h -- Python's format mini-language: what may stand after the colon of
// "{:>8.2f}", and the layout of numbers that '%' shares with it.
#pragma once
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace skiff::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > = ^, or 0: right for numbers, left for the rest
  char sign = '-';
  bool alternate = false;  // '#': 0x before hexadecimal digits
  size_t width = 0;        // characters
  char grouping = 0;       // ',' or '_'
  int precision = -1;
  char type = 0;
};

// A decimal number at *at, moved behind it; 0 if there is none. Fails above kMaxFormatWidth.
constexpr size_t kMaxFormatWidth = 100'000;
size_t format_number(std::string_view text, size_t* at);

FormatSpec parse_format_spec(std::string_view text);
// format(value, spec); fails where Python does. An empty spec is str().
std::string format_value(Budget& budget, const Value& value, std::string_view spec);

// Digits of the magnitude in base 2, 8, 10 or 16, lower case.
std::string integer_digits(int64_t value, int base);
// A finite or infinite magnitude by type e, f, g or %, in either case of letters.
std::string float_digits(double magnitude, char type, int precision, bool alternate);
// Sign and digits put into the width; `prefix` (0x) stays before padding zeros.
std::string padded_number(Budget& budget, bool negative, const std::string& prefix,
                          std::string digits, const FormatSpec& spec);
std::string padded_text(Budget& budget, std::string text, const FormatSpec& spec);

}  // namespace skiff::jinja
