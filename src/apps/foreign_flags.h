// apps/foreign_flags.h -- names that other engines have for what is a flag here under another name.
#pragma once
#include <string_view>

namespace skiff::apps {

// Returns the flag of this program that does what `name` does in vLLM, SGLang or llama.cpp, as a
// user would type it without the leading dashes; empty if there is none. Names have no dashes in
// front; those between words are dashes.
std::string_view flag_here(std::string_view name);

}  // namespace skiff::apps
