// text/unigram.h -- unigram language model tokenization of one word (Kudo 2018, "Subword
// Regularization"): the segmentation whose pieces' scores have the greatest sum.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/byte_trie.h"
#include "text/string_map.h"

namespace skiff::text {

// Immutable; safe from any thread.
class Unigram {
 public:
  struct Piece {
    std::string text;
    double score = 0;  // a log-probability
  };
  // `unk` is the id of the unknown token, or -1, and then unknown characters are dropped. With
  // byte_fallback unknown characters become tokens <0x00>..<0xFF>, if all of those exist.
  Unigram(const std::vector<Piece>& pieces, int32_t unk, bool byte_fallback);

  // Appends the tokens of `word` (valid UTF-8), in time linear in its length for pieces of bounded
  // length. Among equally good segmentations it takes the one whose last piece is the longest, and
  // so on.
  void encode(std::string_view word, std::vector<int32_t>& out) const;
  std::optional<int32_t> find(std::string_view piece) const;

 private:
  struct Step;
  std::vector<Step> best_path(std::string_view word) const;
  void unknown(std::string_view text, std::vector<int32_t>& out) const;

  ByteTrie trie_;
  std::vector<double> scores_;
  StringMap<int32_t> ids_;
  int32_t unk_;
  double unk_score_;
  std::optional<std::array<int32_t, 256>> bytes_;
};

struct UnigramFile {
  Unigram model;
  std::vector<std::string> written;  // by id
};

// "model" of a tokenizer.json of type Unigram; throws LoadError naming where and key.
UnigramFile read_unigram(const Fields& spec);

}  // namespace skiff::text
