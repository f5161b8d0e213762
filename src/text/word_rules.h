// text/word_rules.h -- the pre-tokenizers of tokenizer.json that consist of patterns only.
#pragma once
#include <string_view>

#include "text/split_words.h"

namespace skiff::text {

// A type may have several rules, applied in order.
struct WordRule {
  std::string_view type, pattern;
  SplitBehavior behavior;
  bool invert;  // the matches are the words, not the separators
};

// Word characters are those of UTS #18 here, not the regex dialect's \w.
constexpr WordRule kWordRules[] = {
    {"Whitespace",
     R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)",
     SplitBehavior::kRemoved, true},
    {"WhitespaceSplit", R"(\s)", SplitBehavior::kRemoved, false},
    {"BertPreTokenizer", R"(\s)", SplitBehavior::kRemoved, false},
    {"BertPreTokenizer", R"([\p{P}\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}])",
     SplitBehavior::kIsolated, false},
};

}  // namespace skiff::text
