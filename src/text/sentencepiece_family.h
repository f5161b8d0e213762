// text/sentencepiece_family.h -- what a SentencePiece model does not say and the Python class of
// tokenizer_config.json hard-codes: more special tokens and what stands in front of a text.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer_config.h"

namespace skiff {

struct SentencePieceFamily {
  std::vector<AddedToken> appended;  // their ids follow those of the model, in order
  std::vector<std::string> before;   // put in front of a text
  bool bos = false;                  // BOS is put unless add_bos_token says otherwise
};

// By tokenizer_class. Classes that are not known, and none, add nothing; where no class is named
// BOS is put, as the library's own programs do for Llama's models.
SentencePieceFamily sentencepiece_family(const TokenizerConfig& config);

}  // namespace skiff
