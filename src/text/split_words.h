// text/split_words.h -- cutting a text at the matches of a pattern, and what becomes of the
// matches ("behavior" of the Split pre-tokenizer).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/text_regex.h"
#include "text/word_pattern.h"

namespace skiff {

//   kIsolated            matches are words of their own     kRemoved     matches vanish
//   kMergedWithPrevious  a match ends the word before it    kContiguous  neighbouring matches are
//   kMergedWithNext      a match begins the word after it                one word
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Throws LoadError naming `where`.
SplitBehavior split_behavior(const std::string& name, const std::string& where);

// What a text is cut at: an exact string or a regular expression.
struct SplitPattern {
  std::string text;                  // not empty, if there is nothing else
  std::optional<WordPattern> words;  // a regular expression that is matched by hand
  std::optional<TextRegex> regex;    // any other
  bool invert = false;               // what lies between the matches counts as the match

  // Throws LoadError: {"String": ...} or {"Regex": ...}.
  static SplitPattern read(const Fields& pattern);
  static SplitPattern from_regex(std::string_view regex, const std::string& where);
};

// Cuts texts one after the other; one per thread and step.
class Splitter {
 public:
  Splitter(const SplitPattern& pattern, SplitBehavior behavior);
  // The non-empty pieces of `text` in order; valid until the next call.
  const std::vector<TextRange>& split(std::string_view text);

 private:
  struct Part {
    TextRange range;
    bool match;
  };
  void find(std::string_view text);
  void find_words(std::string_view text);
  void merge_previous();
  void merge_next();

  const SplitPattern& pattern_;
  SplitBehavior behavior_;
  std::optional<TextRegex::Scan> scan_;
  std::vector<TextRange> matches_, pieces_;
  std::vector<Part> parts_;
};

}  // namespace skiff
