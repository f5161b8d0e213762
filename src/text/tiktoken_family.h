// text/tiktoken_family.h -- what a rank file lacks and each model's Python class hard-codes: the
// split pattern and the special tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_config.h"

namespace skiff::text {

struct TiktokenFamily {
  std::string_view name;
  std::string_view pattern;           // the regular expression that matches the words of a text
  bool nfc = false;                   // texts are first normalized to NFC
  std::vector<std::string> specials;  // by id, from the first id behind the ranks; "": none
  std::vector<std::string> before;    // tokens added in front of a text
  std::string bos, eos;               // empty if there is none
};

// Selects the family by tokenizer_class where that identifies one, else by the number of ranks:
// Llama 3 (128000), Qwen (151643), GLM-4 (ChatGLM4Tokenizer), cl100k (100256). For everything else
// it throws a LoadError that names `where` and what to do about it.
TiktokenFamily tiktoken_family(const TokenizerConfig& config, size_t ranks,
                               const std::string& where);

}  // namespace skiff::text
