// text/jinja/print.h -- values as text: Python's str(), repr() and json.dumps().
#pragma once
#include <string>

#include "text/jinja/value.h"

namespace skiff::jinja {

std::string to_text(Budget& budget, const Value& value);  // str()
std::string repr(Budget& budget, const Value& value);
std::string float_repr(double value);

struct JsonStyle {
  bool ascii = false;   // \uXXXX for what is not ASCII
  bool pretty = false;  // a line per item, `indent` per level
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
std::string json_text(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace skiff::jinja
