// text/base64.h -- base64 (RFC 4648 section 4), in which tokenizer files and clients write bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff::text {

// Returns nullopt unless `text` consists of whole groups of four with their padding.
std::optional<std::string> bytes_from_base64(std::string_view text);
// Appends the text of the bytes, padded to whole groups of four.
void append_base64(std::string& out, std::string_view bytes);

}  // namespace skiff::text
