// grammar/schema/formats.h -- the values of "format" that are enforced; all others are annotations.
#pragma once
#include <string_view>

#include "grammar/characters.h"

namespace skiff::grammar {

bool is_format(std::string_view name);
// The strings of a format.
ExprId format_strings(std::string_view name, Speller& speller);

}  // namespace skiff::grammar
