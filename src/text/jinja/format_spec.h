// text/jinja/format_spec.h -- Python's format mini-language: parses what follows the colon in
// "{:>8.2f}" and formats numbers for it and for '%'.
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

// Reads a decimal number at *at and moves *at behind it; returns 0 if there is none. Throws above
// kMaxFormatWidth.
constexpr size_t kMaxFormatWidth = 100'000;
size_t format_number(std::string_view text, size_t* at);

FormatSpec parse_format_spec(std::string_view text);
// Implements format(value, spec); throws where Python does. An empty spec means str().
std::string format_value(Budget& budget, const Value& value, std::string_view spec);

// Returns the digits of the magnitude in base 2, 8, 10 or 16, in lower case.
std::string integer_digits(int64_t value, int base);
// Formats a finite or infinite magnitude by type e, f, g or %, in lower or upper case.
std::string float_digits(double magnitude, char type, int precision, bool alternate);
// Pads sign and digits to the width; `prefix` (0x) stays before padding zeros.
std::string padded_number(Budget& budget, bool negative, const std::string& prefix,
                          std::string digits, const FormatSpec& spec);
std::string padded_text(Budget& budget, std::string text, const FormatSpec& spec);

}  // namespace skiff::jinja
