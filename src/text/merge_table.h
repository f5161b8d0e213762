// text/merge_table.h -- the merges of a byte-pair encoding: which two tokens become which, and in
// what order.
#pragma once
#include <cstdint>
#include <vector>

namespace skiff {

struct Merge {
  int32_t rank = -1;  // lower ranks merge first; -1: the pair does not merge
  int32_t token = -1;
};

// An open-addressing hash table; immutable once filled.
class MergeTable {
 public:
  explicit MergeTable(size_t merges = 0) {
    size_t slots = 16;
    while (slots < 2 * merges) slots *= 2;
    slots_.resize(slots);
  }

  // At most as many as the constructor was told. A repeated pair keeps its last rank.
  void add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[place(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }

  Merge find(int32_t left, int32_t right) const { return slots_[place(key_of(left, right))].merge; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Where `key` is, or the free slot where it would be.
  size_t place(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace skiff
