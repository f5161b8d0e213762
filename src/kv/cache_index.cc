#include "kv/cache_index.h"

#include <algorithm>

#include "base/check.h"

namespace skiff {

CacheIndex::CacheIndex(int num_blocks, int block_size, bool share_prefixes, uint64_t seed)
    : block_size_(block_size),
      share_(share_prefixes),
      pool_(num_blocks),
      tree_(pool_, block_size, seed) {}

int CacheIndex::open(BlockTable& table, std::span<const Token> tokens) {
  SKIFF_CHECK(table.blocks.empty());
  if (share_ && table.sharing.share) table.blocks = tree_.match(tokens, table.sharing.salt);
  table.published = static_cast<int>(table.blocks.size());
  return table.published * block_size_;
}

bool CacheIndex::grow(BlockTable& table, int tokens) {
  const int need = blocks_for(tokens) - static_cast<int>(table.blocks.size());
  if (need > num_free()) return false;
  if (need > pool_.num_free())
    evictions_ += static_cast<uint64_t>(tree_.evict(need - pool_.num_free()));
  for (int i = 0; i < need; ++i) table.blocks.push_back(pool_.take());
  return true;
}

void CacheIndex::publish(BlockTable& table, std::span<const Token> tokens, int computed) {
  if (!share_ || !table.sharing.share) return;
  const auto size = static_cast<size_t>(block_size_);
  for (; table.published < computed / block_size_; ++table.published) {
    const auto i = static_cast<size_t>(table.published);
    const BlockId parent = i == 0 ? PrefixTree::kRoot : table.blocks[i - 1];
    table.blocks[i] =
        tree_.insert(parent, tokens.subspan(i * size, size), table.blocks[i], table.sharing.salt);
  }
}

void CacheIndex::close(BlockTable& table) {
  for (const BlockId id : table.blocks) tree_.drop(id);
  table.blocks.clear();
  table.published = 0;
}

}  // namespace skiff
