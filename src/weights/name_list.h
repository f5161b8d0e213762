// weights/name_list.h -- lists in error lines: "a, b, c, ..." (fmt::join trips a false warning of
// GCC 12 inside fmt 9).
#pragma once
#include <fmt/format.h>

#include <string>

namespace skiff {

// Joins the elements with ", " and puts "..." after the first `max_shown`.
template <class Range>
std::string name_list(const Range& range, size_t max_shown = 16) {
  std::string out;
  size_t shown = 0;
  for (const auto& item : range) {
    if (shown) out += ", ";
    if (shown++ == max_shown) return out + "...";
    out += fmt::format("{}", item);
  }
  return out;
}

}  // namespace skiff
