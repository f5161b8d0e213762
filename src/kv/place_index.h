// kv/place_index.h -- which of a set of numbered places holds which block, and which place is
// reused next. Serves both host memory and the records of a file.
#pragma once
#include <unordered_map>
#include <vector>

#include "kv/block_key.h"

namespace skiff::kv {

// Places are numbered 0 .. size-1. Those that nobody pins stand in an LRU list from cold to hot:
// put() takes the coldest, which is an unused one while there are any. All operations cost O(1).
// Not thread-safe.
class PlaceIndex {
 public:
  static constexpr int kNone = -1;
  PlaceIndex(int size, uint64_t seed);

  int size() const { return static_cast<int>(places_.size()) - 1; }
  int count() const { return static_cast<int>(by_key_.size()); }  // places in use
  int find(const BlockKey& key) const;                            // kNone if no place holds the key
  const BlockKey& key(int place) const { return at(place).key; }
  bool in_use(int place) const { return at(place).used; }
  bool ready(int place) const { return at(place).ready; }  // whether its contents have been written

  // A place for a key that has none: the coldest, whose former key is forgotten. Pinned once, not
  // ready. kNone if all are pinned.
  int put(const BlockKey& key);
  // Makes a place that nobody pins hold the key, ready and hot. For restoring an index.
  void assign(int place, const BlockKey& key);
  void set_ready(int place) { at(place).ready = true; }
  void erase(int place);  // forgets its key
  void pin(int place);
  void unpin(int place);
  bool pinned(int place) const { return at(place).pins > 0; }
  void touch(int place);  // moves it to the hot end, now or when it is unpinned
  void cool(int place);   // moves it to the cold end, now or when it is unpinned

 private:
  struct Place {
    BlockKey key{};
    int before = 0, after = 0;  // neighbours in the LRU list; meaningless while pinned
    int pins = 0;
    bool used = false, ready = false, hot = true;
  };
  Place& at(int place) { return places_[static_cast<size_t>(place)]; }
  const Place& at(int place) const { return places_[static_cast<size_t>(place)]; }
  void join(int place);
  void leave(int place);
  void move(int place);

  int end_;                    // sentinel of the LRU list (places_.back())
  std::vector<Place> places_;  // [size + 1]
  std::unordered_map<BlockKey, int, BlockKeyHash> by_key_;
};

}  // namespace skiff::kv
