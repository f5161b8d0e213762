// kv/cache_index.h -- all that the scheduler may know of KV memory.
#pragma once
#include "kv/prefix_tree.h"

namespace skiff {

// The blocks of one sequence: position p lies in blocks[p / block_size]. Only CacheIndex changes
// it.
struct BlockTable {
  CacheSharing sharing;  // set before open()
  std::vector<BlockId> blocks;
  int published = 0;  // the first so many blocks are in the prefix tree
};

// Steps run on the device in the order in which they were planned, so a block that close() or
// publish() lets go may be handed out again at once: whoever reads it was planned earlier than
// whoever will write it. Not thread-safe.
class CacheIndex {
 public:
  // `seed` makes the places of the hash tables unknown to those who choose the tokens.
  CacheIndex(int num_blocks, int block_size, bool share_prefixes, uint64_t seed = 0);
  // Start a sequence from whatever prefix of `tokens` is cached; returns how many tokens that is,
  // a multiple of the block size. Leave out of `tokens` what must be computed in any case.
  int open(BlockTable& table, std::span<const Token> tokens);
  // Make room for `tokens` tokens in all. Evicts if it must. All or nothing.
  bool grow(BlockTable& table, int tokens);
  // The keys and values of the first `computed` tokens are written, or will be before any step
  // planned from now on reads them: let others find them. May exchange blocks of the table for
  // ones that hold the same tokens after the same prefix. Costs only what is new since last time.
  void publish(BlockTable& table, std::span<const Token> tokens, int computed);
  void close(BlockTable& table);

  int num_blocks() const { return pool_.num_blocks(); }
  int num_free() const { return pool_.num_free() + tree_.num_evictable(); }  // after eviction
  int block_size() const { return block_size_; }
  int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  uint64_t evictions() const { return evictions_; }  // blocks, since the start

 private:
  int block_size_;
  bool share_;
  uint64_t evictions_ = 0;
  BlockPool pool_;
  PrefixTree tree_;
};

}  // namespace skiff
