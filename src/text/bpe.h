// text/bpe.h -- byte-pair encoding of one word (Sennrich et al. 2016, "Neural Machine Translation
// of Rare Words with Subword Units", with the ordered merges of GPT-2).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/char_pairs.h"
#include "text/char_tokens.h"
#include "text/merge_table.h"
#include "text/token_index.h"
#include "text/word_cache.h"

namespace skiff::text {

struct BpeModel {
  // Holds every token that merges may start from or make. With byte_level its keys are bytes, else
  // text.
  TokenIndex vocab;
  MergeTable merges;
  bool byte_level = false;       // words are merged from bytes, else from characters
  bool byte_fallback = false;    // characters outside the vocabulary become tokens <0x00>..<0xFF>
  bool fuse_unk = false;         // consecutive unknown characters become one unknown token
  bool ignore_merges = false;    // a word that is itself a token is not merged
  bool fallback_merges = false;  // some merge consumes a token <0xNN>
  int32_t unk = -1;              // -1: unknown characters are dropped
};

// Immutable but for the cache; safe from any thread.
class Bpe {
 public:
  explicit Bpe(BpeModel model);

  // Appends the tokens of `word` (valid UTF-8, or any bytes with byte_level), in O(n log n) of its
  // length.
  void encode(std::string_view word, std::vector<int32_t>& out) const;
  const BpeModel& model() const { return model_; }

 private:
  bool can_part() const;
  void encode_parts(std::string_view word, std::vector<int32_t>& out) const;
  void merge(std::string_view word, const WordCache::Key* key, std::vector<int32_t>& out) const;
  void merge_bytes(std::string_view word, const WordCache::Key* key,
                   std::vector<int32_t>& out) const;
  void first_tokens(std::string_view word, std::vector<int32_t>& out) const;
  void fallback(std::string_view character, bool after_unknown, std::vector<int32_t>& out) const;

  BpeModel model_;
  std::array<int32_t, 256> byte_token_;      // byte_level: the token of one byte, or -1
  std::array<int32_t, 256> fallback_token_;  // the token <0xNN>, or -1
  bool all_bytes_ = false;                   // byte_level, and every byte has a token
  std::vector<uint32_t> byte_ranks_;         // if all_bytes_: the merge of two bytes, or kNone
  CharTokens characters_;                    // not byte_level
  std::optional<CharPairs> pairs_;           // if present, long words are cut where no token joins
  mutable WordCache cache_;
};

}  // namespace skiff::text
