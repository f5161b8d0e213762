// text/bpe_reader.h -- "model" of tokenizer.json: vocabulary and merges.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "text/bpe.h"

namespace skiff {

constexpr int32_t kMaxTokenId = (1 << 21) - 1;

struct BpeFile {
  BpeModel model;
  std::vector<std::string> written;  // by id, as the file writes them; empty where there is none
};

// Throws LoadError naming `where` and key: other model types, no merges, ids that repeat or are
// out of range, merges of tokens that the vocabulary lacks.
BpeFile read_bpe(const Fields& spec, bool byte_level);

}  // namespace skiff
