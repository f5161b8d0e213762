#include "kv/prefix_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace skiff::kv {

namespace {

uint64_t mixed(uint64_t h, uint32_t value) {
  h = (h ^ value) * 0xff51afd7ed558ccdull;
  return h ^ (h >> 32);
}

// Mixes the label with the seed letter by letter: a salt is chosen by whoever sends a request, and
// texts that collide in a hash without a secret are easily made.
uint64_t seed_with(uint64_t seed, std::string_view label) {
  for (const char c : label) seed = mixed(seed, static_cast<uint8_t>(c));
  return seed;
}

}  // namespace

uint64_t PrefixTree::hash_edge(uint64_t seed, BlockId parent, std::span<const Token> tokens) {
  uint64_t h = seed ^ (0x9e3779b97f4a7c15ull * static_cast<uint64_t>(parent + 2));
  for (const Token t : tokens) h = mixed(h, static_cast<uint32_t>(t));
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

// The salt's length separates it from the extras.
std::string PrefixTree::label(const CacheSharing& sharing, size_t i) const {
  std::string extra =
      extra_of(sharing, static_cast<int>(i * block_size_), static_cast<int>((i + 1) * block_size_));
  if (i > 0 || (sharing.salt.empty() && extra.empty())) return extra;
  return fmt::format("{} {}{}", sharing.salt.size(), sharing.salt, extra);
}

uint64_t PrefixTree::hash_of(BlockId parent, std::span<const Token> tokens,
                             const std::string& label) const {
  return hash_(seed_with(seed_, label), parent, tokens);
}

bool PrefixTree::has_label(BlockId id, const std::string& label) {
  return node(id).labelled ? labels_.at(id) == label : label.empty();
}

BlockId PrefixTree::find(BlockId parent, std::span<const Token> tokens, uint64_t hash,
                         const std::string& label) {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const BlockId id = it->second;
    if (node(id).parent == parent && has_label(id, label) &&
        std::ranges::equal(this->tokens(id), tokens))
      return id;
  }
  return kRoot;
}

std::vector<BlockId> PrefixTree::match(std::span<const Token> tokens, const CacheSharing& sharing) {
  std::vector<BlockId> path;
  for (BlockId at = kRoot; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    const auto edge = tokens.first(block_size_);
    const std::string label = this->label(sharing, path.size());
    at = find(at, edge, hash_of(at, edge, label), label);
    if (at == kRoot) break;
    share(at);
    path.push_back(at);
  }
  return path;
}

BlockId PrefixTree::insert(BlockId parent, std::span<const Token> tokens, BlockId block,
                           const std::string& label) {
  SKIFF_CHECK(tokens.size() == block_size_);
  SKIFF_CHECK(!node(block).known, "block {} is in the tree already", block);
  const uint64_t hash = hash_of(parent, tokens, label);
  if (const BlockId known = find(parent, tokens, hash, label); known != kRoot) {
    share(known);
    pool_.drop(block);
    return known;
  }
  if (parent != kRoot) ++node(parent).children;  // not in leaves_: the caller holds it
  node(block) = {.parent = parent, .known = true, .labelled = !label.empty(), .hash = hash};
  if (!label.empty()) labels_.emplace(block, label);
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
  if (node(id).labelled) labels_.erase(id);
  node(id) = {};
  --evictable_;
  pool_.drop(id);
  if (parent == kRoot) return;
  --node(parent).children;
  add_leaf(parent);
}

}  // namespace skiff::kv
