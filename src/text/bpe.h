// text/bpe.h -- byte-pair encoding of one word (Sennrich et al. 2016, "Neural Machine Translation
// of Rare Words with Subword Units", with the ordered merges of GPT-2).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/char_pairs.h"
#include "text/merge_table.h"
#include "text/string_map.h"
#include "text/word_cache.h"

namespace skiff {

struct BpeModel {
  // Every token that the merges may start from or make. With byte_level, keys are bytes, else they
  // are text.
  StringMap<int32_t> vocab;
  MergeTable merges;
  bool byte_level = false;       // words are merged from bytes, else from characters
  bool byte_fallback = false;    // characters outside the vocabulary become tokens <0x00>..<0xFF>
  bool fuse_unk = false;         // unknown characters in a row are one unknown token
  bool ignore_merges = false;    // a word that is a token is that token
  bool fallback_merges = false;  // some merge takes a token <0xNN>
  int32_t unk = -1;              // -1: unknown characters vanish
};

// Immutable but for the cache; safe from any thread.
class Bpe {
 public:
  explicit Bpe(BpeModel model);

  // Appends the tokens of `word`, in O(n log n) of its length.
  void encode(std::string_view word, std::vector<int32_t>& out) const;
  const BpeModel& model() const { return model_; }

 private:
  bool can_part() const;
  void encode_part(std::string_view word, std::vector<int32_t>& out) const;
  void first_tokens(std::string_view word, std::vector<int32_t>& out) const;
  void fallback(std::string_view character, bool after_unknown, std::vector<int32_t>& out) const;

  BpeModel model_;
  std::array<int32_t, 256> byte_token_;      // byte_level: the token of one byte, or -1
  std::array<int32_t, 256> fallback_token_;  // the token <0xNN>, or -1
  std::optional<CharPairs> pairs_;           // present: long words are parted where nothing joins
  mutable WordCache cache_;
};

}  // namespace skiff
