// text/tiktoken_tokenizer.h -- tokenizers published as a tiktoken rank file (tokenizer.model of
// Llama 3, qwen.tiktoken of Qwen 1).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace skiff::text {

// `bytes` is the file, `where` its name for errors. Any bytes give a tokenizer or an Error
// (kInvalid: broken; kUnsupported: no known family, see tiktoken_family.h). Tokens of `config`
// replace those of the family with the same ids.
Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view bytes,
                                                  const TokenizerConfig& config,
                                                  const std::string& where);

}  // namespace skiff::text
