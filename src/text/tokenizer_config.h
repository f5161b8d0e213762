// text/tokenizer_config.h -- what tokenizer_config.json and its companions say about a tokenizer.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"

namespace skiff {

struct TokenizerConfig {
  std::string tokenizer_class, name_or_path;
  std::string bos, eos;                  // written forms; empty if there is none
  std::optional<bool> add_bos, add_eos;  // as given in the file
  bool legacy = true;                    // SentencePiece: a space before every stretch of text
  std::vector<AddedToken> added;         // added_tokens_decoder, then added_tokens.json
  std::vector<std::string> special;      // written forms of tokens that have a special role

  bool is_special(const std::string& token) const;
  bool is_llama() const;  // LlamaTokenizer and its kin: they put BOS unless told otherwise
};

// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of the folder, as
// far as they are there. Throws LoadError naming file and key.
TokenizerConfig read_tokenizer_config(const std::string& model_dir);

}  // namespace skiff
