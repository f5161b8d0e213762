// text/jinja/word_wrap.h -- breaks text into lines of bounded width, where Python's textwrap does.
#pragma once
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"

namespace skiff::jinja {

struct WrapStyle {
  size_t width = 79;  // characters, at least 1
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// Returns the pieces of one line of text, without the white space where it was cut.
std::vector<std::string_view> wrapped(Budget& budget, std::string_view line,
                                      const WrapStyle& style);

}  // namespace skiff::jinja
