#include "kv/block_pool.h"

#include <numeric>

#include "base/check.h"

namespace skiff::kv {

BlockPool::BlockPool(int num_blocks)
    : refs_(static_cast<size_t>(num_blocks), 0), free_(static_cast<size_t>(num_blocks)) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

BlockId BlockPool::take() {
  SKIFF_CHECK(!free_.empty());
  const BlockId id = free_.back();
  free_.pop_back();
  refs_[static_cast<size_t>(id)] = 1;
  return id;
}

void BlockPool::share(BlockId id) {
  SKIFF_CHECK(refs(id) > 0, "block {} is free", id);
  ++refs_[static_cast<size_t>(id)];
}

void BlockPool::drop(BlockId id) {
  SKIFF_CHECK(refs(id) > 0, "block {} is free", id);
  if (--refs_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

}  // namespace skiff::kv
