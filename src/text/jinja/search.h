// text/jinja/search.h -- finds one text in another in time linear in both lengths for any content
// (Knuth, Morris and Pratt), because templates are untrusted.
#pragma once
#include <cstddef>
#include <string_view>

namespace skiff::jinja {

// Like std::string_view::find and rfind without a position; npos if absent. An empty part is found
// at the start or at the end.
size_t find_text(std::string_view text, std::string_view part);
size_t find_last_text(std::string_view text, std::string_view part);

}  // namespace skiff::jinja
