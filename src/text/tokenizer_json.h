// text/tokenizer_json.h -- tokenizers described by a Hugging Face tokenizer.json (model types BPE
// and Unigram).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace skiff::text {

// `bytes` is the file, `where` its name for errors. Any bytes give a tokenizer or an Error
// (kInvalid: broken; kUnsupported: a kind of step that Skiff does not have); memory stays within a
// small multiple of their size. `config` adds tokens, and its add_bos and add_eos, where given,
// replace the post_processor.
Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view bytes,
                                                        const TokenizerConfig& config,
                                                        const std::string& where);

// Converts the older pair of files, vocab.json and merges.txt, into the equivalent tokenizer.json.
// Throws LoadError if tokenizer_class is neither GPT2Tokenizer (or absent) nor Qwen2Tokenizer.
Json tokenizer_json_of_vocab_and_merges(const std::string& model_dir,
                                        const TokenizerConfig& config);

// Builds the tokenizer from a parsed file; throws LoadError.
std::unique_ptr<Tokenizer> make_json_tokenizer(const Json& file, const TokenizerConfig& config,
                                               const std::string& where);

}  // namespace skiff::text
