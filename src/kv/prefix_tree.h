// kv/prefix_tree.h -- the full blocks of tokens that the cache holds.
#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/block_key.h"
#include "kv/block_pool.h"

namespace skiff::kv {

// A trie whose edges are whole blocks of tokens (the idea of RadixAttention, Zheng et al. 2024,
// with the block as the unit). The tree holds one reference on each block it knows. A hash finds an
// edge, then its tokens and its label (salt and extras) are compared: a hit is never false.
//
// Whoever holds a block of the tree holds all blocks above it: match() hands out whole paths, and
// insert() replaces a caller's block by the one that the tree already knows. So a block that only
// the tree holds has nothing but such blocks below it, and all of them can be evicted.
//
// Cost: match and insert are linear in the tokens given; evict takes O(log n) for each block. Not
// thread-safe.
class PrefixTree {
 public:
  static constexpr BlockId kRoot = -1;
  using Hash = uint64_t (*)(uint64_t seed, BlockId parent, std::span<const Token> tokens);
  static uint64_t hash_edge(uint64_t seed, BlockId parent, std::span<const Token> tokens);

  // The pool must outlive the tree. Any hash gives right answers; a bad one is slow.
  PrefixTree(BlockPool& pool, int block_size, uint64_t seed = 0, Hash hash = hash_edge);
  // Returns what the i-th block of a text depends on besides its tokens: the extras that overlap it
  // and, for the first block, the salt. Empty if there are none.
  std::string label(const CacheSharing& sharing, size_t i) const;
  // Returns the longest known prefix of `tokens`, in whole blocks, among what was inserted with the
  // labels of `sharing`. The caller gets a reference on each block.
  std::vector<BlockId> match(std::span<const Token> tokens, const CacheSharing& sharing = {});
  // Records that the caller's `block` holds `tokens` (one block of them) and has this label after
  // the path that ends in `parent`, which the caller holds. Returns the block that the caller holds
  // from now on: `block`, or the one that the tree knew before, in exchange for it.
  BlockId insert(BlockId parent, std::span<const Token> tokens, BlockId block,
                 const std::string& label = {});
  // Releases one reference on any block of the pool, in the tree or not.
  void drop(BlockId id);
  // Frees up to `want` blocks, the least recently dropped leaves first, and returns how many.
  // `before` is called with each while the tree still knows it.
  int evict(int want, const std::function<void(BlockId)>& before = {});
  std::span<const Token> tokens(BlockId id) const;  // tokens of a block of the tree
  int num_evictable() const { return evictable_; }
  int size() const { return static_cast<int>(index_.size()); }  // number of blocks in the tree

 private:
  struct Node {
    BlockId parent = kRoot;
    int children = 0;
    bool known = false, labelled = false;
    uint64_t hash = 0;
    uint64_t dropped = 0;  // value of clock_ when the last caller dropped it
  };

  Node& node(BlockId id) { return nodes_[static_cast<size_t>(id)]; }
  uint64_t hash_of(BlockId parent, std::span<const Token> tokens, const std::string& label) const;
  bool has_label(BlockId id, const std::string& label);
  BlockId find(BlockId parent, std::span<const Token> tokens, uint64_t hash,
               const std::string& label);
  void share(BlockId id);
  void add_leaf(BlockId id);     // adds to leaves_ if it is a leaf that only the tree holds
  void remove_leaf(BlockId id);  // removes from leaves_ if it is there
  void forget(BlockId id);

  BlockPool& pool_;
  size_t block_size_;
  uint64_t seed_;
  Hash hash_;
  std::vector<Node> nodes_;                           // a block of the tree is its own node
  std::vector<Token> tokens_;                         // [num_blocks, block_size]
  std::unordered_map<BlockId, std::string> labels_;   // labels that are not empty
  std::unordered_multimap<uint64_t, BlockId> index_;  // hash of (parent, tokens) -> node
  std::set<std::pair<uint64_t, BlockId>> leaves_;     // evictable blocks, by Node::dropped
  int evictable_ = 0;                                 // nodes that only the tree holds
  uint64_t clock_ = 0;
};

}  // namespace skiff::kv
