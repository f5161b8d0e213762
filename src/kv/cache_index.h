// kv/cache_index.h -- the KV cache as the scheduler sees it: block numbers without bytes.
#pragma once
#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "kv/prefix_tree.h"
#include "kv/tiers.h"

namespace skiff::kv {

// The blocks of one sequence: position p lies in blocks[p / block_size]. Changed by CacheIndex
// only.
struct BlockTable {
  CacheSharing sharing;  // set before open()
  std::vector<BlockId> blocks;
  int published = 0;  // how many leading blocks are in the prefix tree

  // The following members are for lower tiers. All but `found` outlive close().
  std::vector<BlockKey> keys;  // keys of the leading blocks, computed on demand
  int partial = 0;             // tokens of the block of the last key, if that is a partial one
  // Host blocks that continue `blocks`, for begin(); behind it those that are not loaded yet, which
  // come into the blocks from `published` on. The last may be partial: it is never published.
  std::vector<int> found;
  size_t asked = 0;      // blocks before this index have been requested
  uint64_t awaited = 0;  // what held() waits for
  Tiers::Kept kept;      // from fetch() until all is loaded
};

// Steps run on the device in the order in which they were planned, so a block that close() or
// publish() releases may be handed out again at once: its readers were planned earlier than its
// next writer. Not thread-safe.
class CacheIndex {
 public:
  // `seed` randomizes the hash tables, so that nobody can choose tokens that collide. Tiers need
  // shared prefixes.
  CacheIndex(int num_blocks, int block_size, bool share_prefixes, uint64_t seed = 0,
             const TierConfig& tiers = {}, BlockSources sources = {});
  // Starts a sequence from the longest prefix of `tokens` that is cached on the device or in host
  // memory; returns its number of tokens, a multiple of the block size unless a partial block was
  // found that holds all the rest of `tokens`. They must not contain tokens that must be computed
  // in any case. Blocks found in host memory are loaded by begin(), which comes next.
  int open(BlockTable& table, std::span<const Token> tokens);
  // Fetches the blocks that continue a table just opened. Returns true if a source has some of
  // them; the table is then held() until the last of them is answered, or until host memory has
  // room for them, and the caller closes it and opens it again later. A block is fetched at most
  // once for a sequence; after preemption, ask_again() allows it again.
  bool fetch(BlockTable& table, std::span<const Token> tokens);
  bool held(const BlockTable& table) const;
  // Tells the sources which blocks a table will fetch that is not open yet, if full ones of them
  // are missing here. Returns whether it did; release() must follow.
  struct Expecting {
    uint64_t owner = 0;
    std::span<const Token> prompt;  // all tokens of the sequence
    const KvOrigin* origin = nullptr;
    int priority = 0;
  };
  bool expect(BlockTable& table, std::span<const Token> tokens, const Expecting& by);
  void release(uint64_t owner) { tiers_.release(owner); }
  void ask_again(BlockTable& table) {
    table.asked = 0;
    table.kept.let_go();
  }
  // Makes room for `size` tokens in all in a table just opened, and adds loads of blocks found in
  // host memory to the plan that is being made: all of them, or `most`, but none of a block that
  // the device has got meanwhile. The others follow by load(), before any row of the sequence is
  // planned. CHECKs that there is room.
  void begin(BlockTable& table, std::span<const Token> tokens, int size, int most = kAll);
  void load(BlockTable& table, std::span<const Token> tokens, int most);
  static constexpr int kAll = std::numeric_limits<int>::max();
  // Returns whether the plan that is being made loads blocks of the table, for it or for another
  // one.
  bool loads(const BlockTable& table) const {
    return tiers_.loads_any() &&
           std::ranges::any_of(table.blocks, [this](BlockId id) { return tiers_.loads(id); });
  }
  // Makes room for `tokens` tokens in all, all or nothing. Evicts if it must.
  bool grow(BlockTable& table, int tokens);
  // Lets others find the blocks of the first `computed` tokens, whose keys and values are written,
  // or will be before any step planned from now on reads them. May exchange blocks of the table for
  // ones that hold the same tokens after the same prefix. Costs only what is new since last time.
  void publish(BlockTable& table, std::span<const Token> tokens, int computed);
  // Has the sources that take partial blocks store what `tokens`, all of which are computed, have
  // behind their last full block; nothing if they have no full block. The block is kept until it is
  // saved, or until grow() needs it.
  void hand_over_rest(BlockTable& table, std::span<const Token> tokens);
  void close(BlockTable& table);

  // Forgets every block, on the device and in host memory, as if none had ever been computed, and
  // names blocks by this fingerprint from now on, so that a source finds none of another one.
  // CHECKs that no table is open and the tiers are at rest.
  void renew(const std::string& fingerprint);

  // Completes a plan with the copies from and to lower tiers.
  void finish(StepPlan& plan);
  // The lower tiers, which have jobs to be taken and must learn of committed plans; empty() if
  // there are none.
  Tiers& tiers() { return tiers_; }
  const Tiers& tiers() const { return tiers_; }

  int num_blocks() const { return pool_.num_blocks(); }
  int num_free() const { return pool_.num_free() + tree_.num_evictable(); }  // if all are evicted
  int num_unused() const { return pool_.num_free(); }  // free blocks without contents
  int block_size() const { return block_size_; }
  int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  uint64_t evictions() const { return evictions_; }  // evicted blocks since the start

 private:
  std::span<const BlockKey> keys_of(BlockTable& table, std::span<const Token> tokens) const;
  BlockKey rest_key(const BlockTable& table, std::span<const Token> tokens) const;
  bool evict(int want);
  void drop_saved();

  int block_size_;
  bool share_;
  uint64_t evictions_ = 0;
  BlockPool pool_;
  PrefixTree tree_;
  Tiers tiers_;
};

}  // namespace skiff::kv
