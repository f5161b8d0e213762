// kv/block_pool.h -- reference counts on numbered blocks. No bytes, tokens or devices here.
#pragma once
#include <vector>

#include "message/step.h"

namespace skiff::kv {

// Blocks are numbered 0 .. num_blocks-1. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(int num_blocks);
  int num_blocks() const { return static_cast<int>(refs_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int refs(BlockId id) const { return refs_[static_cast<size_t>(id)]; }
  BlockId take();          // refs becomes 1; CHECKs num_free() > 0
  void share(BlockId id);  // ++refs; CHECKs that the block is in use
  void drop(BlockId id);   // --refs; free again at zero

 private:
  std::vector<int> refs_;
  std::vector<BlockId> free_;  // a stack: the block freed last is taken first
};

}  // namespace skiff::kv
