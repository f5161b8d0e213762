// text/detokenizer.h -- turns tokens into a stream of text that never ends inside a character or
// inside what may become a stop string. One per reply; not thread-safe.
#pragma once
#include <string>

#include "base/shared_list.h"
#include "text/stop_finder.h"
#include "text/tokenizer.h"

namespace skiff::text {

struct DetokenizerOptions {
  StopStrings stops;          // any number, any length
  bool include_stop = false;  // the text includes the stop string itself
  bool skip_special = true;
  SharedList<int32_t> shown;  // special tokens that are not skipped
  // No stop string is looked for in the text of this many tokens at the beginning.
  int min_tokens = 0;
};

// The text continues the prompt, so a leading space stays. The reply ends with the stop string that
// is complete first in the text, however tokens cut it; if two end at the same byte, the longer one
// counts. The work is linear in the text. Borrows the tokenizer.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options);
  // Adds a token and returns the text that is now certain, as valid UTF-8 (invalid bytes become
  // U+FFFD as in utf8_sanitized). Returns nothing once stopped().
  std::string push(int32_t token);
  // Returns the rest at the end of a reply; unfinished bytes become U+FFFD.
  std::string flush();
  bool stopped() const { return stopped_; }
  const std::string& stop_found() const { return stop_found_; }
  // No character is unfinished.
  bool between_characters() const { return bytes_.empty(); }

 private:
  bool skips(int32_t token) const;
  std::string take(std::string_view text);
  std::string release(size_t keep);
  std::string stop();

  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  StopFinder finder_;
  std::string bytes_;  // bytes of an unfinished character
  int pushed_ = 0;     // tokens
  std::string held_;   // whole characters that push() has not returned yet
  std::string stop_found_;
  bool stopped_ = false;
};

}  // namespace skiff::text
