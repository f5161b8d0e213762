// text/sentencepiece_tokenizer.h -- tokenizers in SentencePiece's own format (tokenizer.model, BPE
// or unigram), run by libsentencepiece.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace skiff {

// `bytes` is the file, `where` its name for errors. Any bytes give a tokenizer or an Error. BOS is
// put where `config` says so, or by default for Llama classes and where no class is named. Every
// stretch of text between special tokens gets the model's leading space; with config.legacy off
// only one at the very beginning does.
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view bytes,
                                                       const TokenizerConfig& config,
                                                       const std::string& where);

}  // namespace skiff
