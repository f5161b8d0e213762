// text/sentencepiece_tokenizer.h -- tokenizers in SentencePiece's own format (tokenizer.model, BPE
// or unigram), run by libsentencepiece.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace skiff::text {

// `bytes` is the file, `where` its name for errors. Any bytes give a tokenizer or an Error. The
// tokens around a text are those that `config` names, else those of its class
// (sentencepiece_family.h). Every stretch of text between special tokens gets the model's leading
// space; with config.legacy off, only a stretch at the very beginning does.
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view bytes,
                                                       const TokenizerConfig& config,
                                                       const std::string& where);

}  // namespace skiff::text
