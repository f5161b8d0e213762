// text/word_pattern.h -- the split patterns of well-known tokenizers, matched by hand. They give
// the words that TextRegex gives, several times faster.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace skiff {

class CharClasses;

// Immutable; safe from any thread. Cheap to copy.
class WordPattern {
 public:
  struct Piece {
    size_t end;
    bool match;  // else what lies before the next match, or before the end
  };

  // The pattern with exactly this text, as a tokenizer file writes it; nullopt: not one of ours.
  static std::optional<WordPattern> find(std::string_view regex);

  // The piece of `text` (valid UTF-8) that begins at `at`, where a piece before ended; at <
  // text.size(). A gap is followed by a match or the end.
  Piece next(std::string_view text, size_t at) const { return next_(*classes_, text, at); }

 private:
  using Next = Piece (*)(const CharClasses&, std::string_view, size_t);
  WordPattern(const CharClasses& classes, Next next) : classes_(&classes), next_(next) {}

  const CharClasses* classes_;
  Next next_;
};

}  // namespace skiff
