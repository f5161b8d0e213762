// kv/slot_index.h -- which of some numbered places holds which block, and which place is the next
// to be used again. Serves host memory and the records of a file alike.
#pragma once
#include <unordered_map>
#include <vector>

#include "kv/block_key.h"

namespace skiff {

// Slots are numbered 0 .. size-1. Those that nobody pins stand in one line from cold to hot: put()
// takes the coldest, which is an unused one while there are any. All operations cost O(1). Not
// thread-safe.
class SlotIndex {
 public:
  static constexpr int kNone = -1;
  SlotIndex(int size, uint64_t seed);

  int size() const { return static_cast<int>(slots_.size()) - 1; }
  int count() const { return static_cast<int>(places_.size()); }  // slots in use
  int find(const BlockKey& key) const;                            // kNone if it has no slot
  const BlockKey& key(int slot) const { return at(slot).key; }
  bool in_use(int slot) const { return at(slot).used; }
  bool ready(int slot) const { return at(slot).ready; }  // its contents are there

  // A slot for a key that has none: the coldest, whose former key is forgotten. Pinned once, not
  // ready. kNone if all are pinned.
  int put(const BlockKey& key);
  // The slot, which nobody pins, holds the key, ready and hot. For reading an index back.
  void assign(int slot, const BlockKey& key);
  void set_ready(int slot) { at(slot).ready = true; }
  void erase(int slot);  // forget its key
  void pin(int slot);
  void unpin(int slot);
  bool pinned(int slot) const { return at(slot).pins > 0; }
  void touch(int slot);  // hot, now or when it is unpinned
  void cool(int slot);   // the reverse

 private:
  struct Slot {
    BlockKey key{};
    int before = 0, after = 0;  // in line; meaningless while pinned
    int pins = 0;
    bool used = false, ready = false, hot = true;
  };
  Slot& at(int slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& at(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  void join(int slot);
  void leave(int slot);
  void move(int slot);

  int end_;                  // sentinel of the LRU list (slots_.back())
  std::vector<Slot> slots_;  // [size + 1]
  std::unordered_map<BlockKey, int, BlockKeyHash> places_;
};

}  // namespace skiff
