// base/json_text.h -- writes JSON strings straight into text, for code too hot to build a tree.
#pragma once
#include <string>
#include <string_view>

namespace skiff {

// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the
// result is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

}  // namespace skiff
