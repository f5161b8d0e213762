// text/bpe_reader.h -- reads "model" of tokenizer.json: vocabulary and merges.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/bpe.h"
#include "text/token_index.h"

namespace skiff::text {

constexpr int32_t kMaxTokenId = (1 << 21) - 1;

// Pairs of tokens as a file writes them, in one block of memory.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right) {
    pairs_.push_back({text_.size(), left.size(), right.size()});
    (text_ += left) += right;
  }
  size_t size() const { return pairs_.size(); }
  std::string_view left(size_t i) const { return both(i).substr(0, pairs_[i].left); }
  std::string_view right(size_t i) const { return both(i).substr(pairs_[i].left); }
  std::string_view both(size_t i) const {
    return std::string_view(text_).substr(pairs_[i].at, pairs_[i].left + pairs_[i].right);
  }

 private:
  struct Pair {
    size_t at, left, right;
  };
  std::string text_;
  std::vector<Pair> pairs_;
};

// The large parts of "model".
struct BpeLists {
  TokenIndex vocab;  // by written form; ids in [0, kMaxTokenId]
  MergeList merges;  // at most kMaxTokenId
};

struct BpeFile {
  BpeModel model;
  TokenIndex ids;                    // by written form
  std::vector<std::string> written;  // by id, as the file writes them; empty where there is none
};

// Throws a LoadError that names `where` and the key for other model types, missing merges and ids
// out of range.
BpeLists read_bpe_lists(const Fields& spec);

// Splits "left right" at its one space into two tokens; returns two empty ones for any other text.
std::pair<std::string_view, std::string_view> split_merge(std::string_view written);

// Reads `spec`, whose vocab and merges are in `lists`. Throws a LoadError that names `where` and
// the key for other model types, a missing vocabulary, repeated ids, and merges of tokens that the
// vocabulary lacks.
BpeFile read_bpe(const Fields& spec, BpeLists lists, bool byte_level);

}  // namespace skiff::text
