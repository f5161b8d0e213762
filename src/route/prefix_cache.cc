#include "route/prefix_cache.h"

namespace skiff::route {

// A block is only there while all before it are: they are used whenever it is, and later in add().
size_t PrefixCache::match(std::span<const uint64_t> blocks) const {
  size_t low = 0, high = blocks.size();
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (places_.contains(blocks[middle - 1]))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

void PrefixCache::add(std::span<const uint64_t> blocks) {
  if (blocks.size() > max_blocks_) blocks = blocks.first(max_blocks_);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const auto [place, fresh] = places_.try_emplace(*block);
    if (fresh)
      order_.push_front(*block);
    else
      order_.splice(order_.begin(), order_, place->second);
    place->second = order_.begin();
  }
  while (places_.size() > max_blocks_) {
    places_.erase(order_.back());
    order_.pop_back();
  }
}

void PrefixCache::clear() {
  places_.clear();
  order_.clear();
}

}  // namespace skiff::route
