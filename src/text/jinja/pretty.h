// text/jinja/pretty.h -- formats a value on lines of at most 80 characters, as Python's pprint
// does, with sorted keys.
#pragma once
#include <string>

#include "text/jinja/value.h"

namespace skiff::jinja {

std::string pretty(Budget& budget, const Value& value);

}  // namespace skiff::jinja
