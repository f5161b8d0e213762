// text/regex_dialect.h -- from the regular expression dialect of tokenizer files (Oniguruma with
// Ruby syntax) to PCRE2's.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace skiff {

// The same language for PCRE2 with UTF, UCP and MULTILINE. What differs and is handled: \s and \w
// (their Unicode definitions differ in U+0085, U+180E, marks and connector punctuation). Refused
// with kUnsupported: class intersection (&&), nested classes, \h, \W inside a class, option m.
Result<std::string> translate_oniguruma(std::string_view pattern);

}  // namespace skiff
