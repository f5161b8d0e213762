// text/pre_tokenizer.h -- "pre_tokenizer" of tokenizer.json: cuts normalized text into the words
// that are tokenized one by one.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/word_pattern.h"

namespace skiff::text {

struct Word {
  std::string_view text;
  bool first = false;  // whether the whole input begins with it
};

// The words of one text between steps, and the strings that steps created for them.
struct Words {
  std::vector<Word> list;
  std::deque<std::string> owned;
};

using SplitStep = std::function<void(Words& words)>;

struct PreTokenizer {
  std::vector<SplitStep> steps;
  // The steps with a hand-matched pattern whose matches are words of their own.
  std::vector<WordPattern> patterns;
  bool byte_level = false;  // the vocabulary is written in the alphabet of text/byte_level.h

  // True if all steps are of that kind; then for_each_word finds the words without making lists.
  bool by_pattern() const { return patterns.size() == steps.size(); }
  template <class Use>
  void for_each_word(std::string_view text, const Use& use, size_t step = 0) const {
    if (step == patterns.size()) return use(text);
    for (size_t at = 0, end; at < text.size(); at = end) {
      end = patterns[step].next(text, at).end;
      for_each_word(text.substr(at, end - at), use, step + 1);
    }
  }
};

// `spec` is the value of the key (null: one word). Supported: Sequence, Split, ByteLevel (as the
// last step), Metaspace, Digits, Punctuation, CharDelimiterSplit and the types of word_rules.h.
// Throws LoadError naming `where` otherwise.
PreTokenizer read_pre_tokenizer(const Json& spec, const std::string& where);

}  // namespace skiff::text
