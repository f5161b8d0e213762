// text/regex_dialect.h -- translates the regular expression dialect of tokenizer files (Oniguruma
// with Ruby syntax) to PCRE2's.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace skiff::text {

// Returns a pattern of the same language for PCRE2 with UTF, UCP and MULTILINE. It translates \s
// and \w, whose Unicode definitions differ in U+0085, U+180E, marks and connector punctuation. It
// refuses class intersection (&&), nested classes, \h, \W inside a class and option m with
// kUnsupported.
Result<std::string> translate_oniguruma(std::string_view pattern);

}  // namespace skiff::text
