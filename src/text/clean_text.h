// text/clean_text.h -- the normalizers of tokenizer.json that work on one character at a time.
#pragma once
#include <string>
#include <string_view>

namespace skiff::text {

// "Nmt": removes control characters; unusual spaces and invisible characters become spaces.
std::string nmt_cleaned(std::string_view text);

// "StripAccents": removes marks, without decomposing characters first.
std::string without_marks(std::string_view text);

struct BertCleaning {
  bool clean_text = true;            // removes control characters; white space becomes spaces
  bool handle_chinese_chars = true;  // puts spaces around CJK ideographs
  bool strip_accents = true;         // applies NFD, then removes nonspacing marks
  bool lowercase = true;
};
// "BertNormalizer": applies the four options in this order.
std::string bert_cleaned(std::string_view text, const BertCleaning& options);

}  // namespace skiff::text
