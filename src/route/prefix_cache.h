// route/prefix_cache.h -- which prompts a backend has seen lately, by the names of their blocks: an
// image of what its own prefix cache may still hold.
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

namespace skiff::route {

// Forgets the block that was used longest ago when it is full, a block before those that it
// follows. Memory is bounded by about 100 bytes a block. Not thread-safe.
class PrefixCache {
 public:
  explicit PrefixCache(size_t max_blocks) : max_blocks_(max_blocks) {}

  // Returns how many of the blocks, from the first one on, are there. A name stands for all before
  // it, too (Prompt::blocks), so this looks at few of them.
  size_t match(std::span<const uint64_t> blocks) const;
  // Adds all blocks, as the most recently used.
  void add(std::span<const uint64_t> blocks);
  void clear();
  size_t size() const { return places_.size(); }

 private:
  using Order = std::list<uint64_t>;  // most recently used first
  const size_t max_blocks_;
  Order order_;
  std::unordered_map<uint64_t, Order::iterator> places_;
};

}  // namespace skiff::route
