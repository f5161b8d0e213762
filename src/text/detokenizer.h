// text/detokenizer.h -- streams text out of tokens: never half a character, never the beginning
// of what may become a stop string. One per reply; not thread-safe.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace skiff {

struct DetokenizerOptions {
  std::vector<std::string> stops;  // any number, any length; empty ones are ignored
  bool include_stop = false;       // the stop string itself is part of the text
  bool skip_special = true;
};

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options);
  // Text that is now certain. Nothing more comes once stopped().
  std::string push(int32_t token);
  // The rest, at the end of a reply; unfinished bytes become U+FFFD.
  std::string flush();
  bool stopped() const { return stopped_; }
  const std::string& stop_found() const { return stop_found_; }

 private:
  std::string release(size_t keep);
  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  std::string held_;      // bytes not yet given out
  std::string stop_found_;
  bool stopped_ = false;
};

}  // namespace skiff
