// kv/cache_index.h -- all that the scheduler may know of KV memory.
#pragma once
#include <optional>

#include "kv/prefix_tree.h"
#include "kv/tiers.h"

namespace skiff {

// The blocks of one sequence: position p lies in blocks[p / block_size]. Only CacheIndex changes
// it.
struct BlockTable {
  CacheSharing sharing;  // set before open()
  std::vector<BlockId> blocks;
  int published = 0;  // the first so many blocks are in the prefix tree

  // Of lower tiers. What belongs to the tokens outlives close().
  std::vector<BlockKey> keys;      // of the leading blocks, as far as anybody asked
  std::vector<int> found;          // host slots of the blocks after `blocks`, for begin()
  size_t asked = 0;                // the file has been asked for blocks before this one
  uint64_t held_at = ~uint64_t{};  // Tiers::answers() when it was asked
};

// Steps run on the device in the order in which they were planned, so a block that close() or
// publish() lets go may be handed out again at once: whoever reads it was planned earlier than
// whoever will write it. Not thread-safe.
class CacheIndex {
 public:
  // `seed` makes the places of the hash tables unknown to those who choose the tokens.
  // Tiers need shared prefixes.
  CacheIndex(int num_blocks, int block_size, bool share_prefixes, uint64_t seed = 0,
             const TierConfig& tiers = {}, std::span<const StoredBlock> stored = {});
  // Start a sequence from whatever prefix of `tokens` is cached, here or in host memory; returns
  // how many tokens that is, a multiple of the block size. Leave out of `tokens` what must be
  // computed in any case. The blocks in host memory are to be brought here by begin(), next.
  int open(BlockTable& table, std::span<const Token> tokens);
  // Just opened: does the file have more of it? Then it is being read, and the table is held();
  // close it and open it again later. At most once for each block; ask_again() after preemption.
  bool fetch(BlockTable& table, std::span<const Token> tokens);
  bool held(const BlockTable& table) const;
  void ask_again(BlockTable& table) { table.asked = 0; }
  // Just opened: make room for `size` tokens in all and have what was found in host memory copied
  // by the plan in the making. CHECKs that there is room.
  void begin(BlockTable& table, std::span<const Token> tokens, int size);
  // Make room for `tokens` tokens in all. Evicts if it must. All or nothing.
  bool grow(BlockTable& table, int tokens);
  // The keys and values of the first `computed` tokens are written, or will be before any step
  // planned from now on reads them: let others find them. May exchange blocks of the table for
  // ones that hold the same tokens after the same prefix. Costs only what is new since last time.
  void publish(BlockTable& table, std::span<const Token> tokens, int computed);
  void close(BlockTable& table);

  // The last word on a plan, and that it was carried out; answers of lower tiers and what they
  // should do. Nothing where there are none.
  void finish(StepPlan& plan);
  void committed(uint64_t step);
  // What a step of so many rows and copied blocks took, see kv/tier_cost.h.
  void measured(int rows, int copies, double seconds, double copy_seconds) {
    if (tiers_) tiers_->measured(rows, copies, seconds, copy_seconds);
  }
  void done(const TierDone& answer);
  void set_usable(bool usable);  // the file
  std::vector<TierJob> take_jobs();
  bool has_file() const { return tiers_ && tiers_->has_file(); }
  bool owes_saves() const { return tiers_ && tiers_->owes_saves(); }
  bool awaits_answer() const { return tiers_ && tiers_->awaits_answer(); }
  TierStats tier_stats() const { return tiers_ ? tiers_->stats() : TierStats{}; }

  int num_blocks() const { return pool_.num_blocks(); }
  int num_free() const { return pool_.num_free() + tree_.num_evictable(); }  // after eviction
  int num_unused() const { return pool_.num_free(); }                        // hold nothing, so far
  int block_size() const { return block_size_; }
  int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  uint64_t evictions() const { return evictions_; }  // blocks, since the start

 private:
  std::span<const BlockKey> keys_of(BlockTable& table, std::span<const Token> tokens) const;

  int block_size_;
  bool share_;
  uint64_t evictions_ = 0;
  BlockPool pool_;
  PrefixTree tree_;
  std::optional<Tiers> tiers_;
};

}  // namespace skiff
