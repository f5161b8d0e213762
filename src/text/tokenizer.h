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

namespace skiff {

struct EncodeOptions {
  bool add_special = true;    // what the model's post-processor adds (BOS, EOS)
  bool parse_special = true;  // the text of a special token becomes that token
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Any bytes are accepted. Invalid UTF-8 is encoded by byte fallback or as U+FFFD.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // The bytes that a token stands for inside a text; may be half a character. Special tokens give
  // their written form. Empty for ids that the vocabulary does not name.
  virtual std::string_view piece(int32_t token) const = 0;
  virtual bool is_special(int32_t token) const = 0;
  // Ids are in [0, vocab_size()); a model's logits may be wider (padding).
  virtual int vocab_size() const = 0;
  virtual std::optional<int32_t> find(std::string_view token_text) const = 0;
  // Written forms as special_tokens of tokenizer_config.json name them; empty if there is none.
  virtual std::string bos() const = 0;
  virtual std::string eos() const = 0;
  // Text of a whole sequence, as the reference implementations decode it: a leading space that
  // encode() put there is dropped, invalid UTF-8 becomes U+FFFD.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special) const = 0;
};

// `path` is a folder, where the first of tokenizer.json, tokenizer.model, *.tiktoken, and
// vocab.json with merges.txt is read, or one such file. What kind it is, its bytes tell.
// tokenizer_config.json and its companions are looked for beside it. Errors name the file and what
// is wrong with it.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path);

}  // namespace skiff
