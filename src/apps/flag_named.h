// apps/flag_named.h -- looks a flag up in the table.
#pragma once
#include <string_view>

#include "apps/args.h"

namespace skiff::apps {

// Returns the flag of that name, with dashes or underscores between its words and none in front;
// null if there is none. It may be one that `command` does not have.
const Flag* flag_named(std::string_view name, Commands command);

}  // namespace skiff::apps
