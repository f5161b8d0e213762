// text/word_pattern.h -- the split patterns of well-known tokenizers, matched by hand-written code.
// They give the same words as TextRegex, several times faster.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace skiff::text {

class CharClasses;

// Immutable; safe from any thread. Cheap to copy.
class WordPattern {
 public:
  struct Piece {
    size_t end;
    bool match;  // false: the text before the next match or the end
  };

  // Returns the pattern with exactly this text, as a tokenizer file writes it; nullopt if there is
  // no hand-written code for it.
  static std::optional<WordPattern> find(std::string_view regex);

  // Returns the piece of `text` (valid UTF-8) that begins at `at` < text.size(), where the piece
  // before it ended. A gap is followed by a match or the end.
  Piece next(std::string_view text, size_t at) const { return next_(*classes_, text, at); }

 private:
  using Next = Piece (*)(const CharClasses&, std::string_view, size_t);
  WordPattern(const CharClasses& classes, Next next) : classes_(&classes), next_(next) {}

  const CharClasses* classes_;
  Next next_;
};

}  // namespace skiff::text
