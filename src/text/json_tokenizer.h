// text/json_tokenizer.h -- the Tokenizer of a tokenizer.json: it normalizes, splits and merges, and
// decodes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/string_map.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

namespace skiff::text {

struct JsonTokenizerParts {
  std::vector<NormalizeStep> normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel bpe;
  std::optional<Unigram> unigram;  // used instead of bpe if present
  TextFrame frame;
  TokenDecoder decoder;
  AddedTokens raw, normalized;       // matched before and after the normalizer
  std::vector<std::string> written;  // by id; empty where there is none
  std::vector<std::string> pieces;   // by id: the bytes that the token stands for
  std::vector<bool> special;         // by id
  StringMap<int32_t> added;          // by content
  std::string bos, eos;
};

class JsonTokenizer final : public Tokenizer {
 public:
  explicit JsonTokenizer(JsonTokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view piece(int32_t token) const override;
  bool is_special(int32_t token) const override;
  int vocab_size() const override { return static_cast<int>(parts_.written.size()); }
  std::optional<int32_t> find(std::string_view token_text) const override;
  std::string bos() const override { return parts_.bos; }
  std::string eos() const override { return parts_.eos; }
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override;

 private:
  bool named(int32_t token) const;
  void encode_plain(std::string_view text, bool first, bool parse_special,
                    std::vector<int32_t>& out) const;
  void encode_words(std::string_view text, bool first, std::vector<int32_t>& out) const;

  JsonTokenizerParts parts_;
  Bpe bpe_;
};

}  // namespace skiff::text
