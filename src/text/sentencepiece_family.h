// text/sentencepiece_family.h -- what a SentencePiece model lacks and the Python class named in
// tokenizer_config.json hard-codes: more special tokens and the tokens in front of a text.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer_config.h"

namespace skiff::text {

struct SentencePieceFamily {
  std::vector<AddedToken> appended;  // their ids follow those of the model, in order
  std::vector<std::string> before;   // tokens added in front of a text
  bool bos = false;                  // BOS is added unless add_bos_token says otherwise
};

// Looks the family up by tokenizer_class. An unknown class adds nothing; without a class, BOS is
// added, as the library's own programs do for Llama's models.
SentencePieceFamily sentencepiece_family(const TokenizerConfig& config);

}  // namespace skiff::text
