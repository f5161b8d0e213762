#include "kv/prefix_tree.h"

#include <algorithm>

#include "base/check.h"

namespace skiff {

uint64_t PrefixTree::hash_edge(uint64_t seed, BlockId parent, std::span<const Token> tokens) {
  uint64_t h = seed ^ (0x9e3779b97f4a7c15ull * static_cast<uint64_t>(parent + 2));
  for (const Token t : tokens) {
    h = (h ^ static_cast<uint32_t>(t)) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return h;
}

PrefixTree::PrefixTree(BlockPool& pool, int block_size, uint64_t seed, Hash hash)
    : pool_(pool),
      block_size_(static_cast<size_t>(block_size)),
      seed_(seed),
      hash_(hash),
      nodes_(static_cast<size_t>(pool.num_blocks())),
      tokens_(nodes_.size() * block_size_) {}

std::span<const Token> PrefixTree::tokens(BlockId id) const {
  return std::span(tokens_).subspan(static_cast<size_t>(id) * block_size_, block_size_);
}

uint64_t PrefixTree::hash_of(BlockId parent, std::span<const Token> tokens,
                             const std::string& salt) const {
  const bool salted = parent == kRoot && !salt.empty();
  return hash_(salted ? seed_ ^ std::hash<std::string>{}(salt) : seed_, parent, tokens);
}

bool PrefixTree::same_salt(BlockId id, const std::string& salt) const {
  const auto found = salts_.find(id);
  return found == salts_.end() ? salt.empty() : found->second == salt;
}

BlockId PrefixTree::find(BlockId parent, std::span<const Token> tokens, uint64_t hash,
                         const std::string& salt) {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const BlockId id = it->second;
    if (node(id).parent == parent && (parent != kRoot || same_salt(id, salt)) &&
        std::ranges::equal(this->tokens(id), tokens))
      return id;
  }
  return kRoot;
}

std::vector<BlockId> PrefixTree::match(std::span<const Token> tokens, const std::string& salt) {
  std::vector<BlockId> path;
  for (BlockId at = kRoot; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    const auto edge = tokens.first(block_size_);
    at = find(at, edge, hash_of(at, edge, salt), salt);
    if (at == kRoot) break;
    share(at);
    path.push_back(at);
  }
  return path;
}

BlockId PrefixTree::insert(BlockId parent, std::span<const Token> tokens, BlockId block,
                           const std::string& salt) {
  SKIFF_CHECK(tokens.size() == block_size_);
  SKIFF_CHECK(!node(block).known, "block {} is in the tree already", block);
  const uint64_t hash = hash_of(parent, tokens, salt);
  if (const BlockId known = find(parent, tokens, hash, salt); known != kRoot) {
    share(known);
    pool_.drop(block);
    return known;
  }
  if (parent != kRoot) ++node(parent).children;  // not in leaves_: the caller holds it
  node(block) = {.parent = parent, .children = 0, .known = true, .hash = hash, .dropped = 0};
  if (parent == kRoot && !salt.empty()) salts_.emplace(block, salt);
  std::ranges::copy(tokens, tokens_.begin() + int64_t{block} * std::ssize(tokens));
  index_.emplace(hash, block);
  pool_.share(block);
  return block;
}

void PrefixTree::share(BlockId id) {
  if (pool_.refs(id) == 1) {
    remove_leaf(id);
    --evictable_;
  }
  pool_.share(id);
}

void PrefixTree::drop(BlockId id) {
  pool_.drop(id);
  if (!node(id).known || pool_.refs(id) != 1) return;
  ++evictable_;
  node(id).dropped = ++clock_;
  add_leaf(id);
}

void PrefixTree::add_leaf(BlockId id) {
  if (node(id).children == 0 && pool_.refs(id) == 1) leaves_.emplace(node(id).dropped, id);
}

void PrefixTree::remove_leaf(BlockId id) { leaves_.erase({node(id).dropped, id}); }

int PrefixTree::evict(int want, const std::function<void(BlockId)>& before) {
  int freed = 0;
  for (; freed < want && !leaves_.empty(); ++freed) {
    const BlockId id = leaves_.begin()->second;
    leaves_.erase(leaves_.begin());
    if (before) before(id);
    forget(id);
  }
  return freed;
}

void PrefixTree::forget(BlockId id) {
  const auto [begin, end] = index_.equal_range(node(id).hash);
  index_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == id; }));
  const BlockId parent = node(id).parent;
  if (parent == kRoot) salts_.erase(id);
  node(id) = {};
  --evictable_;
  pool_.drop(id);
  if (parent == kRoot) return;
  --node(parent).children;
  add_leaf(parent);
}

}  // namespace skiff
