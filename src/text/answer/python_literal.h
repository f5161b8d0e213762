// text/answer/python_literal.h -- Python's literals as JSON.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff::answer {

// A string, number, True, False, None, list, tuple or dict with string keys, to a depth of 64.
// Nothing for any other text. Nothing is evaluated.
std::optional<std::string> python_to_json(std::string_view text);

}  // namespace skiff::answer
