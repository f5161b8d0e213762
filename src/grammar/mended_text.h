// grammar/mended_text.h -- texts of constraints that are not what was sent.
//
// Parsers of JSON put U+FFFD in the place of half a surrogate pair, which no text can hold, and a
// request's body has been parsed before its schema is read. What was meant is unknown then, and a
// reply with U+FFFD itself would be wrong, so constraints with this character are refused.
#pragma once
#include <string_view>

namespace skiff::grammar {

inline bool is_mended(std::string_view text) { return text.find("\xEF\xBF\xBD") != text.npos; }

inline constexpr std::string_view kMended =
    "holds U+FFFD, which stands for half of a surrogate pair or for bytes that are no text";

}  // namespace skiff::grammar
