// text/sentencepiece_tokenizer.h -- tokenizers in SentencePiece's own format (tokenizer.model, BPE
// or unigram), run by libsentencepiece.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace skiff {

// `bytes` is the file, `where` its name for errors. Any bytes give a tokenizer or an Error. What
// stands around a text is what `config` says, else what its class does (sentencepiece_family.h).
// Every stretch of text between special tokens gets the model's leading space; with config.legacy
// off only one at the very beginning does.
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view bytes,
                                                       const TokenizerConfig& config,
                                                       const std::string& where);

}  // namespace skiff
