// text/token_decoder.h -- "decoder" of tokenizer.json: turns the written forms of tokens into text.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace skiff::text {

// Immutable after read; safe from any thread.
class TokenDecoder {
 public:
  // `spec` is the value of the key (null: tokens are joined by spaces). Supported: Sequence,
  // ByteLevel (as the first step), Replace, ByteFallback, Fuse, Strip, Metaspace. Throws LoadError
  // naming `where` for everything else.
  static TokenDecoder read(const Json& spec, const std::string& where);

  // Returns the bytes that one written token stands for inside a text, which may be part of a
  // character.
  std::string piece(const std::string& written) const;

  // Returns the text of a sequence. Tokens are pieces if byte_level(), else their written forms.
  std::string join(std::vector<std::string> tokens) const;
  bool byte_level() const { return byte_level_; }

 private:
  class Reader;
  std::vector<std::function<void(std::string&)>> piece_steps_;
  std::vector<std::function<void(std::vector<std::string>&)>> steps_;
  bool byte_level_ = false, spaced_ = false;
};

}  // namespace skiff::text
