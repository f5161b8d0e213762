// text/tiktoken_family.h -- what a rank file does not say and each model's Python class hard-codes:
// how texts are split and which special tokens there are.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_config.h"

namespace skiff {

struct TiktokenFamily {
  std::string_view name;
  std::string_view pattern;           // words of a text, as a regular expression
  bool nfc = false;                   // texts are put in normal form C first
  std::vector<std::string> specials;  // by id, from the first id behind the ranks; "": none
  std::vector<std::string> before;    // put in front of a text
  std::string bos, eos;               // empty if there is none
};

// By tokenizer_class where it is telling, else by the number of ranks: Llama 3 (128000), Qwen
// (151643), GLM-4 (ChatGLM4Tokenizer), cl100k (100256). Throws LoadError naming `where` and the
// way out for everything else.
TiktokenFamily tiktoken_family(const TokenizerConfig& config, size_t ranks,
                               const std::string& where);

}  // namespace skiff
