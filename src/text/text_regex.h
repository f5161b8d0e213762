// text/text_regex.h -- the regular expressions of tokenizer files, matched with PCRE2 (JIT) under
// limits. Patterns are written for Oniguruma (Ruby syntax); constructs that differ in PCRE2 are
// translated or refused.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::text {

struct TextRange {
  size_t begin, end;
};

// Immutable; safe from any thread. Cheap to copy.
class TextRegex {
 public:
  // Returns kUnsupported with the reason; the caller names file and key.
  static Result<TextRegex> compile(std::string_view pattern);

  // Finds the matches in one text after the other; holds the scratch memory of one thread.
  class Scan {
   public:
    explicit Scan(const TextRegex& regex);
    ~Scan();
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    // Appends the non-overlapping matches from left to right; empty ones are left out. `text`
    // must be valid UTF-8. Where a match exceeds the limits (about 10 million steps, 64 MiB),
    // there are no further matches: the rest of the text stays in one piece.
    void find_all(std::string_view text, std::vector<TextRange>& matches);

   private:
    struct Scratch;
    const TextRegex& regex_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace skiff::text
