// draft/ngram_table.h -- where n tokens in a row have stood in a text.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "message/request.h"

namespace skiff::draft {

// Remembers where each n-gram of one growing text ended last. It keeps positions only and compares
// tokens in the text itself, so 8 to 16 bytes for each token are all its memory. Nothing is ever
// moved: when a level is full, a new one of twice its size begins, so that every call takes a
// bounded time. A level is a hash table of small buckets; where one is full, its oldest position is
// forgotten.
class NgramTable {
 public:
  explicit NgramTable(int n) : n_(n) {}
  int n() const { return n_; }
  // Adds the n tokens before `end`; ends rise from call to call. CHECKs that there are n.
  void add(std::span<const Token> text, int end);
  // Returns where the last n tokens of `text` ended before, as the number of tokens up to there; 0
  // if nowhere. If they stood in several places, it is the last of these that was added.
  int find(std::span<const Token> text) const;

 private:
  static constexpr size_t kBucket = 4;
  struct Level {
    std::vector<int32_t> ends;  // buckets of kBucket; 0: free
    size_t room = 0;            // positions to add before the next level begins
  };
  uint64_t hash(std::span<const Token> text, int end) const;
  bool same(std::span<const Token> text, int end, int other) const;
  static std::span<const int32_t> bucket(const Level& level, uint64_t hash);

  int n_;
  std::vector<Level> levels_;  // the oldest first
};

}  // namespace skiff::draft
