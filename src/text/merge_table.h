// text/merge_table.h -- the merges of a byte-pair encoding: which two tokens become which token,
// and with what rank.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace skiff::text {

struct Merge {
  int32_t rank = -1;  // lower ranks merge first; -1: the pair does not merge
  int32_t token = -1;
};

// An open-addressing hash table with slots of 8 bytes, because cache misses in it dominate the cost
// of encoding. Immutable once filled. Tokens and ranks are in [0, 2^21).
class MergeTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  explicit MergeTable(size_t merges = 0) {
    size_t slots = 16;
    while (2 * slots < 3 * merges) slots *= 2;
    slots_.assign(slots, kFree);
    shift_ = 64 - std::countr_zero(slots);
  }

  // May be called at most as often as the constructor's `merges` says. A repeated pair keeps its
  // last rank.
  void add(int32_t left, int32_t right, Merge merge) {
    const auto rank = static_cast<uint32_t>(merge.rank);
    if (rank >= made_.size()) made_.resize(rank + 1);
    made_[rank] = merge.token;
    slots_[place(key_of(left, right))] = key_of(left, right) << kRankBits | rank;
  }

  // Returns the rank of the pair, or kNone if it does not merge.
  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t slot = slots_[place(key_of(left, right))];
    return slot == kFree ? kNone : static_cast<uint32_t>(slot & ((1u << kRankBits) - 1));
  }
  // Returns the token that the merge of this rank makes.
  int32_t made(uint32_t rank) const { return made_[rank]; }

  Merge find(int32_t left, int32_t right) const {
    const uint32_t found = rank(left, right);
    return found == kNone ? Merge{} : Merge{static_cast<int32_t>(found), made(found)};
  }

 private:
  static constexpr int kTokenBits = 21, kRankBits = 22;
  static constexpr uint64_t kFree = ~uint64_t{0};

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << kTokenBits | static_cast<uint32_t>(right);
  }
  // Returns the index of `key`, or of the free slot where it would be.
  size_t place(uint64_t key) const {
    size_t at = key * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[at] != kFree && slots_[at] >> kRankBits != key)
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<uint64_t> slots_;  // left token, right token, rank
  std::vector<int32_t> made_;    // by rank
  int shift_;
};

}  // namespace skiff::text
