#include "kv/cache_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skiff::kv {

CacheIndex::CacheIndex(int num_blocks, int block_size, bool share_prefixes, uint64_t seed,
                       const TierConfig& tiers, BlockSources sources)
    : block_size_(block_size),
      share_(share_prefixes),
      pool_(num_blocks),
      tree_(pool_, block_size, seed),
      tiers_(tiers, num_blocks, block_size, seed, std::move(sources)) {
  SKIFF_CHECK(share_ || tiers_.empty(), "lower tiers hold shared prefixes");
}

int CacheIndex::open(BlockTable& table, std::span<const Token> tokens) {
  SKIFF_CHECK(table.blocks.empty() && table.found.empty());
  if (share_ && table.sharing.share) {
    table.blocks = tree_.match(tokens, table.sharing);
    if (!tiers_.empty())
      table.found = tiers_.ready({keys_of(table, tokens), tokens, table.blocks.size()});
  }
  table.published = static_cast<int>(table.blocks.size());
  const auto found = static_cast<int>(table.blocks.size() + table.found.size()) * block_size_;
  return std::min(found, static_cast<int>(tokens.size()));
}

// The name of what the tokens have behind their last full block. They have full blocks, whose keys
// are known.
BlockKey CacheIndex::rest_key(const BlockTable& table, std::span<const Token> tokens) const {
  const size_t blocks = tokens.size() / static_cast<size_t>(block_size_);
  const size_t begin = blocks * static_cast<size_t>(block_size_);
  return partial_key(
      table.keys[blocks - 1], tokens.subspan(begin),
      extra_of(table.sharing, static_cast<int>(begin), static_cast<int>(tokens.size())));
}

std::span<const BlockKey> CacheIndex::keys_of(BlockTable& table,
                                              std::span<const Token> tokens) const {
  const auto size = static_cast<size_t>(block_size_), n = tokens.size() / size;
  const size_t rest = tiers_.fetches_partial() && n > 0 ? tokens.size() % size : 0;
  // That of a partial block says nothing about any other number of tokens.
  if (std::exchange(table.partial, 0) > 0) table.keys.pop_back();
  for (size_t i = table.keys.size(); i < n; ++i) {
    const BlockKey parent =
        i > 0 ? table.keys[i - 1] : root_key(tiers_.fingerprint(), table.sharing.salt);
    const auto begin = static_cast<int>(i * size);
    table.keys.push_back(child_key(parent, tokens.subspan(i * size, size),
                                   extra_of(table.sharing, begin, begin + block_size_)));
  }
  if (rest == 0 || table.keys.size() > n) return std::span(table.keys).first(n);
  table.keys.push_back(rest_key(table, tokens));
  table.partial = static_cast<int>(rest);
  return table.keys;
}

bool CacheIndex::fetch(BlockTable& table, std::span<const Token> tokens) {
  if (tiers_.empty() || !table.sharing.share) return false;
  table.awaited =
      tiers_.fetch({keys_of(table, tokens), tokens, table.blocks.size()}, table.asked, table.kept);
  return table.awaited != 0;
}

bool CacheIndex::expect(BlockTable& table, std::span<const Token> tokens, const Expecting& by) {
  if (!tiers_.expects() || !share_ || !table.sharing.share) return false;
  const int here = open(table, tokens) / block_size_;
  close(table);
  // Less than a block is computed here: that takes no longer than to have it made elsewhere.
  if (here == static_cast<int>(tokens.size()) / block_size_) return false;
  const auto keys = keys_of(table, tokens);
  const int held =
      std::min(static_cast<int>(keys.size()) * block_size_, static_cast<int>(tokens.size()));
  tiers_.expect({.owner = by.owner,
                 .keys = keys.subspan(static_cast<size_t>(here)),
                 .tokens = held - here * block_size_,
                 .prompt = by.prompt,
                 .sharing = table.sharing,
                 .origin = by.origin,
                 .priority = by.priority});
  return true;
}

bool CacheIndex::held(const BlockTable& table) const { return tiers_.awaits(table.awaited); }

void CacheIndex::begin(BlockTable& table, std::span<const Token> tokens, int size, int most) {
  if (!table.found.empty()) tiers_.keep(table.kept, table.found);
  const bool room = grow(table, size);
  SKIFF_CHECK(room, "no room for {} tokens", size);
  const auto here = static_cast<size_t>(table.published);
  if (!tiers_.empty())
    for (size_t i = 0; i < here; ++i) tiers_.found(table.blocks[i]);
  load(table, tokens, most);
}

void CacheIndex::load(BlockTable& table, std::span<const Token> tokens, int most) {
  const auto n = std::min(table.found.size(), static_cast<size_t>(most));
  const auto first = static_cast<size_t>(table.published);
  for (size_t i = 0; i < n; ++i) {
    const int host = table.found[i];
    const BlockId mine = table.blocks[first + i];
    const auto begin = static_cast<int>(first + i) * block_size_;
    publish(table, tokens, begin + tiers_.tokens_in(host));
    if (table.blocks[first + i] != mine) continue;
    tiers_.hold(host);
    tiers_.load(host, mine);
  }
  table.found.erase(table.found.begin(), table.found.begin() + static_cast<std::ptrdiff_t>(n));
  if (table.found.empty()) table.kept.let_go();
}

// Returns whether `want` blocks are free then. They may not be although they count as evictable:
// a block that is owed to a source may have entered the tree since, and holds those before it.
bool CacheIndex::evict(int want) {
  if (want <= pool_.num_free()) return true;
  const auto leaves = [&](BlockId id) { tiers_.evicted(id, tree_.tokens(id)); };
  evictions_ += static_cast<uint64_t>(tree_.evict(want - pool_.num_free(), leaves));
  return want <= pool_.num_free();
}

bool CacheIndex::grow(BlockTable& table, int tokens) {
  const int need = blocks_for(tokens) - static_cast<int>(table.blocks.size());
  if (need > num_free() || !evict(need)) {
    tiers_.save_owed();
    drop_saved();
  }
  if (need > num_free()) return false;
  const bool room = evict(need);
  SKIFF_CHECK(room, "{} blocks cannot be evicted", need);
  for (int i = 0; i < need; ++i) table.blocks.push_back(pool_.take());
  return true;
}

void CacheIndex::publish(BlockTable& table, std::span<const Token> tokens, int computed) {
  if (!share_ || !table.sharing.share) return;
  const auto size = static_cast<size_t>(block_size_);
  for (; table.published < computed / block_size_; ++table.published) {
    const auto i = static_cast<size_t>(table.published);
    const BlockId parent = i == 0 ? PrefixTree::kRoot : table.blocks[i - 1];
    const BlockId mine = table.blocks[i];
    table.blocks[i] =
        tree_.insert(parent, tokens.subspan(i * size, size), mine, tree_.label(table.sharing, i));
    if (!tiers_.empty() && table.blocks[i] == mine)
      tiers_.published(mine, keys_of(table, tokens.first((i + 1) * size))[i]);
  }
}

void CacheIndex::hand_over_rest(BlockTable& table, std::span<const Token> tokens) {
  const auto size = static_cast<size_t>(block_size_), n = tokens.size() / size;
  if (tiers_.empty() || !share_ || !table.sharing.share || n == 0 || tokens.size() % size == 0)
    return;
  keys_of(table, tokens.first(n * size));
  const BlockKey key = rest_key(table, tokens);
  if (!tiers_.wants_partial(key)) return;
  const auto rest = tokens.subspan(n * size);
  pool_.share(table.blocks[n]);
  tiers_.owe({.block = table.blocks[n], .key = key, .tokens = {rest.begin(), rest.end()}});
}

void CacheIndex::finish(StepPlan& plan) {
  tiers_.finish(plan, tree_);
  drop_saved();
}

void CacheIndex::drop_saved() {
  for (const BlockId id : tiers_.take_saved()) tree_.drop(id);
}

void CacheIndex::close(BlockTable& table) {
  for (const BlockId id : table.blocks) tree_.drop(id);
  table.blocks.clear();
  table.found.clear();
  table.published = 0;
}

void CacheIndex::renew(const std::string& fingerprint) {
  SKIFF_CHECK(num_free() == num_blocks(), "{} blocks are in use", num_blocks() - num_free());
  tree_.evict(tree_.num_evictable());
  tiers_.renew(fingerprint);
  drop_saved();
}

}  // namespace skiff::kv
