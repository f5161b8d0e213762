// text/base64.h -- decodes base64 (RFC 4648 section 4), in which tokenizer files write bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff::text {

// Returns nullopt unless `text` consists of whole groups of four with their padding.
std::optional<std::string> bytes_from_base64(std::string_view text);

}  // namespace skiff::text
