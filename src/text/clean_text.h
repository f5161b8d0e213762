// text/clean_text.h -- normalizers of tokenizer.json that look at one character at a time.
#pragma once
#include <string>
#include <string_view>

namespace skiff {

// "Nmt": control characters vanish, unusual spaces and invisible characters become spaces.
std::string nmt_cleaned(std::string_view text);

// "StripAccents": marks vanish (nothing is decomposed first).
std::string without_marks(std::string_view text);

struct BertCleaning {
  bool clean_text = true;            // control characters vanish, white space becomes spaces
  bool handle_chinese_chars = true;  // spaces around CJK ideographs
  bool strip_accents = true;         // NFD, then nonspacing marks vanish
  bool lowercase = true;
};
// "BertNormalizer": these four in this order.
std::string bert_cleaned(std::string_view text, const BertCleaning& options);

}  // namespace skiff
