// text/base64.h -- bytes written in base64 (RFC 4648 section 4), as tokenizer files have them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff {

// nullopt unless `text` is whole groups of four with their padding.
std::optional<std::string> bytes_from_base64(std::string_view text);

}  // namespace skiff
