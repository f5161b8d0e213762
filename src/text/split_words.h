// text/split_words.h -- cuts a text at the matches of a pattern; the "behavior" of the Split
// pre-tokenizer decides what happens to the matches.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/text_regex.h"
#include "text/word_pattern.h"

namespace skiff::text {

//   kIsolated            matches are words of their own     kRemoved     matches vanish
//   kMergedWithPrevious  a match ends the word before it    kContiguous  neighbouring matches are
//   kMergedWithNext      a match begins the word after it                one word
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Throws LoadError naming `where`.
SplitBehavior split_behavior(const std::string& name, const std::string& where);

// The pattern at which a text is cut: an exact string or a regular expression.
struct SplitPattern {
  std::string text;                  // the exact string; used if neither member below is set
  std::optional<WordPattern> words;  // a well-known regular expression with hand-written code
  std::optional<TextRegex> regex;    // any other regular expression
  bool invert = false;               // the text between the matches counts as the match

  // Throws LoadError: {"String": ...} or {"Regex": ...}.
  static SplitPattern read(const Fields& pattern);
  static SplitPattern from_regex(std::string_view regex, const std::string& where);
};

// Cuts one text after the other; each thread and step needs its own.
class Splitter {
 public:
  Splitter(const SplitPattern& pattern, SplitBehavior behavior);
  // Returns the non-empty pieces of `text` in order; they are valid until the next call.
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

}  // namespace skiff::text
