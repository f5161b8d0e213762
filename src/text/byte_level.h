// text/byte_level.h -- the alphabet in which byte-level vocabularies write their tokens: every
// byte is one printable character (GPT-2: Radford et al. 2019, "Language Models are Unsupervised
// Multitask Learners", section 2.2).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff::text {

// Returns the bytes that `written` stands for; nullopt if it holds a character outside the
// alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view written);
// Appends those bytes to `out`. Returns false, with some of the bytes appended, if `written` holds
// a character outside the alphabet.
bool append_bytes_from_alphabet(std::string_view written, std::string& out);

std::string alphabet_from_bytes(std::string_view bytes);

}  // namespace skiff::text
