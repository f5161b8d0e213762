// route/json_members.h -- looks at the members of a JSON object without building anything: the
// router needs a few spans of bodies that may be megabytes long.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

namespace skiff::route {

// A member's name without its quotes, escapes as they stand, and its value as it is written.
using JsonMember = std::pair<std::string_view, std::string_view>;

// Appends the members of the outermost object, in order. Returns false if `text` is no object, or
// if its strings and brackets do not match or nest more than 1024 deep; what lies between them is
// not judged, because the backend does that. It takes linear time and does not recurse.
bool json_members(std::string_view text, std::vector<JsonMember>* members);

}  // namespace skiff::route
