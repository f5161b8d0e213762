// text/tokenizer.h -- text to tokens and back. Immutable after load; safe from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::text {

struct EncodeOptions {
  bool add_special = true;    // add the tokens of the model's post-processor (BOS, EOS)
  bool parse_special = true;  // turn the text of a special token into that token
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Any bytes are accepted. Invalid UTF-8 is encoded by byte fallback or as U+FFFD.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // Returns the bytes that a token stands for inside a text, which may be part of a character.
  // Special tokens give their written form. Empty for ids that the vocabulary does not name.
  virtual std::string_view piece(int32_t token) const = 0;
  virtual bool is_special(int32_t token) const = 0;
  // Ids are in [0, vocab_size()); a model's logits may be wider (padding).
  virtual int vocab_size() const = 0;
  virtual std::optional<int32_t> find(std::string_view token_text) const = 0;
  // Returns the written form that tokenizer_config.json names; empty if there is none.
  virtual std::string bos() const = 0;
  virtual std::string eos() const = 0;
  // Returns the text of a whole sequence as the reference implementations decode it: a leading
  // space that encode() added is dropped, and invalid UTF-8 becomes U+FFFD.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special) const = 0;
};

// `path` is a folder, where the first of tokenizer.json, tokenizer.model, *.tiktoken, and
// vocab.json with merges.txt is read, or one such file. The kind of the file follows from its
// bytes; a GGUF file has its own. tokenizer_config.json and its companions are looked for in the
// same folder. Errors name the file and what is wrong with it.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path);

}  // namespace skiff::text
