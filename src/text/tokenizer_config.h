// text/tokenizer_config.h -- reads tokenizer_config.json and its companions.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"

namespace skiff::text {

struct TokenizerConfig {
  std::string tokenizer_class, name_or_path;
  std::string bos, eos;                  // written forms; empty if there is none
  std::optional<bool> add_bos, add_eos;  // as given in the file
  bool legacy = true;                    // SentencePiece: a space before every stretch of text
  std::vector<AddedToken> added;         // added_tokens_decoder, then added_tokens.json
  std::vector<std::string> special;      // written forms of tokens with a special role

  bool is_special(const std::string& token) const;
  bool is_llama()
      const;  // LlamaTokenizer and related classes, which add BOS unless add_bos is false
};

// Reads those of tokenizer_config.json, special_tokens_map.json and added_tokens.json that exist in
// the folder. Throws a LoadError that names file and key.
TokenizerConfig read_tokenizer_config(const std::string& model_dir);
// Reads what a tokenizer_config.json says. Throws a LoadError that names `where` and the key.
TokenizerConfig make_tokenizer_config(const Json& config, const std::string& where);

}  // namespace skiff::text
