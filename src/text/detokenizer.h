// text/detokenizer.h -- streams text out of tokens: never half a character, never the beginning
// of what may become a stop string. One per reply; not thread-safe.
#pragma once
#include <string>

#include "text/stop_finder.h"
#include "text/tokenizer.h"

namespace skiff {

struct DetokenizerOptions {
  StopStrings stops;          // any number, any length
  bool include_stop = false;  // the stop string itself is part of the text
  bool skip_special = true;
  int min_tokens = 0;  // no stop is looked for in the text of so many tokens at the beginning
};

// The text continues what came before it, so a leading space stays. The reply ends with the stop
// string that is complete first in the text, however tokens cut it; of two that end with the same
// byte, the longer one counts. The work is linear in the text. Borrows the tokenizer.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options);
  // Text that is now certain, valid UTF-8 (invalid bytes become U+FFFD as in utf8_sanitized).
  // Nothing more comes once stopped().
  std::string push(int32_t token);
  // The rest, at the end of a reply; unfinished bytes become U+FFFD.
  std::string flush();
  bool stopped() const { return stopped_; }
  const std::string& stop_found() const { return stop_found_; }

 private:
  std::string take(std::string_view text);
  std::string release(size_t keep);
  std::string stop();

  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  StopFinder finder_;
  std::string bytes_;  // the beginning of a character
  int pushed_ = 0;     // tokens
  std::string held_;   // whole characters not yet given out
  std::string stop_found_;
  bool stopped_ = false;
};

}  // namespace skiff
