// text/nfc_quick.h -- finds where a text may not be in normal form C, so that the rest, which is
// nearly everything, need not be normalized (the quick check of UAX #15, section 9).
#pragma once
#include <string_view>

#include "text/text_regex.h"

namespace skiff::text {

// Returns the first range of `text` (valid UTF-8) at or after `at` that may change under NFC; it is
// empty and at the end if there is none. `at` is 0 or the end of an earlier range. Nothing composes
// across the ends of a range, so each may be normalized on its own.
TextRange maybe_not_nfc(std::string_view text, size_t at);

}  // namespace skiff::text
