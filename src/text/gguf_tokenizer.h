// text/gguf_tokenizer.h -- the tokenizer inside a GGUF file.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

namespace skiff::text {

// What a tokenizer_config.json would say: the written forms of special tokens, whether BOS and EOS
// are added, and the chat templates by name. Nothing where `path` is no GGUF file. Throws a
// LoadError.
std::optional<Json> tokenizer_config_of_gguf(const std::string& path);

// Builds the tokenizer of a GGUF file: SentencePiece's BPE ("llama") or BPE of bytes ("gpt2") with
// a known way to split texts. Throws a LoadError that names the file and the key.
Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::string& path);
// Builds the tokenizer of a header that was read already; `where` is its file's name, for errors.
Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufHeader& header,
                                                       const std::string& where);

}  // namespace skiff::text
