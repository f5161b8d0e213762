// text/sentencepiece_check.h -- checks the bytes of a SentencePiece model before they reach the
// library, which trusts the tables inside.
#pragma once
#include <string_view>

#include "base/result.h"

namespace skiff::text {

// Returns kInvalid, without the file's name, unless `bytes` is a well-formed ModelProto
// (sentencepiece_ model.proto) whose scores are finite, whose pieces hold no NUL and whose
// character map, a double-array trie, stays within its own bounds.
Status check_sentencepiece_model(std::string_view bytes);

}  // namespace skiff::text
