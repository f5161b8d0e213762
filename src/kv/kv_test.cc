// Random operations on the cache index against a model that knows only strings of blocks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

#include "kv/cache_index.h"
#include "kv/record_source.h"

namespace skiff::kv {
namespace {

using Tokens = std::vector<Token>;

TEST(BlockPool, CountsReferences) {
  BlockPool pool(2);
  const BlockId a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.num_free(), 0);
  pool.share(a);
  pool.drop(a);
  EXPECT_EQ(pool.num_free(), 0);
  pool.drop(a);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take(), a);
  pool.drop(a);
  EXPECT_DEATH(pool.drop(a), "is free");
  EXPECT_DEATH(pool.share(a), "is free");
}

TEST(BlockPool, TakingFromNothingIsABug) {
  BlockPool pool(0);
  EXPECT_DEATH(pool.take(), "free_");
}

// A sequence that has computed and published all its tokens.
BlockTable filled(CacheIndex& cache, const Tokens& tokens) {
  BlockTable table;
  cache.open(table, tokens);
  EXPECT_TRUE(cache.grow(table, static_cast<int>(tokens.size())));
  cache.publish(table, tokens, static_cast<int>(tokens.size()));
  return table;
}

int cached(CacheIndex& cache, const Tokens& tokens) {
  BlockTable table;
  const int n = cache.open(table, tokens);
  cache.close(table);
  return n;
}

TEST(CacheIndex, FindsTheLongestPrefixInWholeBlocks) {
  CacheIndex cache(10, 3, true);
  BlockTable a = filled(cache, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(a.published, 2);
  EXPECT_EQ(cached(cache, {1, 2, 3, 4, 5, 6, 7}), 6);
  EXPECT_EQ(cached(cache, {1, 2, 3, 4, 5, 9, 7}), 3);
  EXPECT_EQ(cached(cache, {1, 2}), 0);
  EXPECT_EQ(cached(cache, {4, 5, 6}), 0) << "a block is found only after its own prefix";
  EXPECT_EQ(cache.num_free(), 7);
  cache.close(a);
  EXPECT_EQ(cache.num_free(), 10);
  EXPECT_EQ(cached(cache, {1, 2, 3, 4, 5, 6}), 6) << "closed sequences stay findable";
}

TEST(CacheIndex, SharesNothingWhenTurnedOff) {
  CacheIndex cache(10, 3, false);
  BlockTable a = filled(cache, {1, 2, 3, 4});
  EXPECT_EQ(cached(cache, {1, 2, 3, 4}), 0);
  cache.close(a);
  EXPECT_EQ(cache.num_free(), 10);
}

TEST(CacheIndex, TwoWritersOfOnePrefixEndUpWithOneCopy) {
  CacheIndex cache(10, 2, true);
  const Tokens tokens{1, 2, 3, 4};
  BlockTable a, b;
  ASSERT_TRUE(cache.grow(a, 4) && cache.grow(b, 4));
  cache.publish(a, tokens, 4);
  cache.publish(b, tokens, 4);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(cache.num_free(), 8);
  cache.close(a);
  EXPECT_EQ(cache.num_free(), 8);
  cache.close(b);
  EXPECT_EQ(cache.num_free(), 10);
}

TEST(CacheIndex, GrowIsAllOrNothing) {
  CacheIndex cache(4, 2, true);
  BlockTable old = filled(cache, {1, 2, 3, 4});
  cache.close(old);
  BlockTable a;
  EXPECT_FALSE(cache.grow(a, 9));
  EXPECT_TRUE(a.blocks.empty());
  EXPECT_EQ(cached(cache, {1, 2, 3, 4}), 4) << "nothing is evicted in vain";
  EXPECT_TRUE(cache.grow(a, 8));
  EXPECT_EQ(cached(cache, {1, 2, 3, 4}), 0);
  EXPECT_EQ(cache.evictions(), 2u);
  EXPECT_TRUE(cache.grow(a, 3)) << "it has room already";
  EXPECT_EQ(a.blocks.size(), 4u);
}

TEST(CacheIndex, EvictsWhatWasLeastRecentlyInUse) {
  CacheIndex cache(6, 1, true);
  for (const Tokens& tokens : {Tokens{1, 2}, Tokens{3, 4}, Tokens{1, 5}}) {
    BlockTable table = filled(cache, tokens);
    cache.close(table);
  }
  BlockTable a;
  ASSERT_TRUE(cache.grow(a, 3));  // one block was free: 2 and 4 go, the oldest leaves
  EXPECT_EQ(cached(cache, {1, 2}), 1);
  EXPECT_EQ(cached(cache, {1, 5}), 2);
  EXPECT_EQ(cached(cache, {3, 4}), 1);
}

// The model: what every live sequence holds, and which prefixes have ever been published. The
// content of each block is tracked beside it, as a device would.
class RandomCache : public testing::TestWithParam<int> {};

TEST_P(RandomCache, AgreesWithTheModel) {
  std::mt19937 rng(static_cast<unsigned>(GetParam()));
  const int block = 1 + static_cast<int>(rng() % 4), blocks = 12 + static_cast<int>(rng() % 20);
  CacheIndex cache(blocks, block, true);
  std::vector<Tokens> content(static_cast<size_t>(blocks));  // prefix up to and with this block
  struct Live {
    Tokens tokens;
    BlockTable table;
    int computed;
  };
  std::list<Live> live;
  int hits = 0;

  const auto write = [&](Live& s, int to) {  // "compute" up to `to`
    for (; s.computed < to; ++s.computed) {
      const int i = s.computed / block;
      content[static_cast<size_t>(s.table.blocks[static_cast<size_t>(i)])].assign(
          s.tokens.begin(), s.tokens.begin() + s.computed + 1);
    }
  };
  for (int round = 0; round < 600; ++round) {
    if (rng() % 3 == 0 || live.empty()) {
      Live s;
      const size_t n = 1 + rng() % 30;
      for (size_t i = 0; i < n; ++i) s.tokens.push_back(static_cast<Token>(rng() % 2));
      s.computed = cache.open(s.table, std::span(s.tokens).first(n - 1));
      ASSERT_LT(s.computed, static_cast<int>(n));
      hits += s.computed > 0;
      live.push_back(std::move(s));
    }
    auto it = std::next(live.begin(), static_cast<long>(rng() % live.size()));
    const int n = static_cast<int>(it->tokens.size());
    const int to = std::min(n, it->computed + 1 + static_cast<int>(rng() % 8));
    const int need = cache.blocks_for(to) - static_cast<int>(it->table.blocks.size());
    const bool fits = need <= cache.num_free();
    ASSERT_EQ(cache.grow(it->table, to), fits);
    if (fits) {
      write(*it, to);
      cache.publish(it->table, it->tokens, it->computed);
    }
    if (!fits || it->computed == n || rng() % 8 == 0) {
      cache.close(it->table);
      live.erase(it);
    }
    std::set<BlockId> held;
    for (const Live& s : live) {
      held.insert(s.table.blocks.begin(), s.table.blocks.end());
      for (int p = 0; p < s.computed; ++p) {
        const auto& c =
            content[static_cast<size_t>(s.table.blocks[static_cast<size_t>(p / block)])];
        ASSERT_GT(c.size(), static_cast<size_t>(p));
        ASSERT_TRUE(std::equal(s.tokens.begin(), s.tokens.begin() + p + 1, c.begin()));
      }
    }
    ASSERT_EQ(cache.num_free(), blocks - static_cast<int>(held.size()));
  }
  for (Live& s : live) cache.close(s.table);
  EXPECT_EQ(cache.num_free(), blocks);
  EXPECT_GT(hits, 0);
  EXPECT_GT(cache.evictions(), 0u);
  BlockTable all;
  EXPECT_TRUE(cache.grow(all, blocks * block)) << "what counts as free can be had";
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomCache, testing::Range(0, 60));

TEST(PrefixTree, EqualHashesAreNotEqualTokens) {
  BlockPool pool(4);
  PrefixTree tree(pool, 2, /*seed=*/0,
                  [](uint64_t, BlockId, std::span<const Token>) -> uint64_t { return 1; });
  const Tokens ab{1, 2}, cd{3, 4};
  const BlockId a = tree.insert(PrefixTree::kRoot, ab, pool.take());
  const BlockId b = tree.insert(a, cd, pool.take());
  const BlockId c = tree.insert(PrefixTree::kRoot, cd, pool.take());
  EXPECT_NE(b, c);
  EXPECT_EQ(tree.match(Tokens{1, 2, 3, 4}), (std::vector{a, b}));
  EXPECT_EQ(tree.match(Tokens{3, 4, 3, 4}), (std::vector{c}));
  EXPECT_TRUE(tree.match(Tokens{1, 3}).empty());
  for (const BlockId id : {a, a, b, b, c, c}) tree.drop(id);
  EXPECT_EQ(tree.evict(9), 3);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(tree.size(), 0);
}

TEST(PrefixTree, ADifferentSaltSeesNothing) {
  for (const PrefixTree::Hash hash :
       {PrefixTree::hash_edge,
        +[](uint64_t, BlockId, std::span<const Token>) -> uint64_t { return 1; }}) {
    BlockPool pool(4);
    PrefixTree tree(pool, 2, /*seed=*/5, hash);
    const Tokens ab{1, 2}, cd{3, 4}, all{1, 2, 3, 4};
    const CacheSharing alice{.salt = "alice", .extras = {}}, bob{.salt = "bob", .extras = {}};
    const BlockId a = tree.insert(PrefixTree::kRoot, ab, pool.take(), tree.label(alice, 0));
    const BlockId b = tree.insert(a, cd, pool.take(), tree.label(alice, 1));
    const BlockId c = tree.insert(PrefixTree::kRoot, ab, pool.take(), tree.label(bob, 0));
    EXPECT_NE(a, c);
    EXPECT_EQ(tree.match(all, alice), (std::vector{a, b}));
    EXPECT_EQ(tree.match(all, bob), (std::vector{c}));
    EXPECT_TRUE(tree.match(all).empty());
    for (const BlockId id : {a, a, b, b, c, c}) tree.drop(id);
    EXPECT_EQ(tree.evict(9), 3);
    const BlockId d = tree.insert(PrefixTree::kRoot, ab, pool.take());
    EXPECT_TRUE(tree.match(all, alice).empty()) << "what a block once held is forgotten";
    EXPECT_EQ(tree.match(all), (std::vector{d}));
  }
}

// An image's placeholders are the same tokens whatever the image is.
TEST(PrefixTree, BlocksOfOtherExtrasAreOtherBlocks) {
  for (const PrefixTree::Hash hash :
       {PrefixTree::hash_edge,
        +[](uint64_t, BlockId, std::span<const Token>) -> uint64_t { return 1; }}) {
    BlockPool pool(8);
    PrefixTree tree(pool, 2, /*seed=*/5, hash);
    const Tokens text{1, 2}, image{9, 9}, all{1, 2, 9, 9, 1, 2};
    const auto sharing = [](const char* digest) {
      return CacheSharing{.salt = {}, .extras = {{.begin = 2, .end = 4, .identity = digest}}};
    };
    const BlockId a = tree.insert(PrefixTree::kRoot, text, pool.take());
    const BlockId cat = tree.insert(a, image, pool.take(), tree.label(sharing("cat"), 1));
    const BlockId dog = tree.insert(a, image, pool.take(), tree.label(sharing("dog"), 1));
    const BlockId after = tree.insert(cat, text, pool.take(), tree.label(sharing("cat"), 2));
    EXPECT_NE(cat, dog);
    EXPECT_EQ(tree.match(all, sharing("cat")), (std::vector{a, cat, after}));
    EXPECT_EQ(tree.match(all, sharing("dog")), (std::vector{a, dog}));
    EXPECT_EQ(tree.match(all, sharing("cow")), (std::vector{a}));
    EXPECT_EQ(tree.match(all), (std::vector{a})) << "nor is it a block of plain tokens";
    const BlockId mine = pool.take();
    EXPECT_EQ(tree.insert(a, image, mine, tree.label(sharing("dog"), 1)), dog);
    for (const BlockId id : {a, a, a, a, a, cat, cat, dog, dog, dog, after, after}) tree.drop(id);
    EXPECT_EQ(tree.evict(9), 4);
    EXPECT_EQ(pool.num_free(), 8);
  }
}

CacheSharing with_adapter(const char* name) { return {.salt = {}, .extras = {{.identity = name}}}; }
// Placeholders of one image stand at positions [2, 5).
CacheSharing with_image(const char* digest) {
  return {.salt = {}, .extras = {{.begin = 2, .end = 5, .identity = digest}}};
}

// A sequence that has computed and published all its tokens, and is closed.
void fill(CacheIndex& cache, const Tokens& tokens, const CacheSharing& sharing) {
  BlockTable table;
  table.sharing = sharing;
  cache.open(table, tokens);
  ASSERT_TRUE(cache.grow(table, static_cast<int>(tokens.size())));
  cache.publish(table, tokens, static_cast<int>(tokens.size()));
  cache.close(table);
}

int cached(CacheIndex& cache, const Tokens& tokens, const CacheSharing& sharing) {
  BlockTable table;
  table.sharing = sharing;
  const int n = cache.open(table, tokens);
  cache.close(table);
  return n;
}

// The image reaches into the second and third block, so only the first is common to both.
TEST(CacheIndex, BlocksAreSharedWhereTheirExtrasAgree) {
  CacheIndex cache(20, 2, true);
  const Tokens tokens{1, 2, 9, 9, 9, 3, 4, 5};
  fill(cache, tokens, with_image("cat"));
  EXPECT_EQ(cached(cache, tokens, with_image("cat")), 8);
  EXPECT_EQ(cached(cache, tokens, with_image("dog")), 2);
  EXPECT_EQ(cached(cache, tokens, {}), 2);
  fill(cache, tokens, with_adapter("french"));
  EXPECT_EQ(cached(cache, tokens, with_adapter("french")), 8);
  EXPECT_EQ(cached(cache, tokens, with_adapter("german")), 0);
  EXPECT_EQ(cached(cache, tokens, {}), 2) << "what the image left, and nothing of the adapter";
  CacheSharing both = with_image("cat");
  both.extras.push_back(with_adapter("french").extras[0]);
  EXPECT_EQ(cached(cache, tokens, both), 2) << "the adapter's block before the image";
  CacheSharing salted = with_image("cat");
  salted.salt = "alice";
  EXPECT_EQ(cached(cache, tokens, salted), 0);
}

TEST(CacheIndex, WhoDoesNotShareNeitherGivesNorTakes) {
  CacheIndex cache(8, 2, true);
  const Tokens tokens{1, 2, 3, 4};
  BlockTable shy;
  shy.sharing.share = false;
  ASSERT_TRUE(cache.grow(shy, 4));
  cache.publish(shy, tokens, 4);
  EXPECT_EQ(cached(cache, tokens), 0);
  BlockTable open = filled(cache, tokens);
  EXPECT_EQ(cached(cache, tokens), 4);
  BlockTable again;
  again.sharing.share = false;
  EXPECT_EQ(cache.open(again, tokens), 0);
  cache.close(shy);
  cache.close(open);
  EXPECT_EQ(cache.num_free(), 8);
}

TEST(BlockKey, DependsOnAllThatTheContentsDependOn) {
  const Tokens ab{1, 2}, cd{3, 4};
  const BlockKey root = root_key("model", "salt");
  const std::set<BlockKey> keys{root,
                                root_key("model2", "salt"),
                                root_key("models", "alt"),
                                root_key("model", ""),
                                child_key(root, ab),
                                child_key(root, cd),
                                child_key(child_key(root, ab), cd),
                                child_key(child_key(root, cd), ab),
                                child_key(root, ab, "cat"),
                                child_key(root, ab, "dog"),
                                child_key(child_key(root, ab, "cat"), cd)};
  EXPECT_EQ(keys.size(), 11u);
  EXPECT_EQ(child_key(root, ab), child_key(root_key("model", "salt"), Tokens{1, 2}));
  const BlockKey empty = sha256({});  // FIPS 180-4
  EXPECT_EQ(empty[0], 0xe3);
  EXPECT_EQ(empty[31], 0x55);
}

// Cache files outlive builds: the key of a block without extras may not change.
TEST(BlockKey, WithoutExtrasIsWhatItWas) {
  const BlockKey key = child_key(root_key("model", "salt"), Tokens{1, 2, 3});
  std::string hex;
  for (const uint8_t byte : key) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "2e133c147e5159a85a78f1590b1eea3bbe97affe8e6c2f9e20c69ccba5b6a82e");
  EXPECT_EQ(extra_of({}, 0, 64), "");
  EXPECT_EQ(extra_of(with_image("cat"), 0, 2), "");
  EXPECT_EQ(extra_of(with_image("cat"), 5, 9), "");
  EXPECT_NE(extra_of(with_image("cat"), 4, 9), "");
}

// Two lists of extras give one text only if they are the same list.
TEST(BlockKey, ExtrasAreNotRunTogether) {
  const auto text = [](std::vector<CacheExtra> extras) {
    return extra_of({.salt = {}, .extras = std::move(extras)}, 0, 8);
  };
  const std::set<std::string> texts{
      text({{.identity = "ab"}, {.identity = "c"}}), text({{.identity = "a"}, {.identity = "bc"}}),
      text({{.identity = "abc"}}), text({{.end = 9, .identity = "abc"}}),
      text({{.begin = 1, .identity = "abc"}})};
  EXPECT_EQ(texts.size(), 5u);
}

// Against a list from cold to hot and a map.
TEST(PlaceIndex, AgreesWithAListAndAMap) {
  std::mt19937 rng(3);
  for (int round = 0; round < 50; ++round) {
    const int n = 1 + static_cast<int>(rng() % 8);
    PlaceIndex index(n, rng());
    std::list<int> line;  // places that nobody pins
    std::map<BlockKey, int> by_key;
    std::map<int, BlockKey> keys;
    std::vector<int> pins(static_cast<size_t>(n));
    std::vector<bool> hot(static_cast<size_t>(n), true);
    for (int place = n; place-- > 0;) line.push_front(place);
    const auto line_up = [&](int place) {
      line.remove(place);
      if (pins[static_cast<size_t>(place)] > 0) return;
      const bool back = keys.contains(place) && hot[static_cast<size_t>(place)];
      line.insert(back ? line.end() : line.begin(), place);
    };
    const auto forget = [&](int place) {
      if (!keys.contains(place)) return;
      by_key.erase(keys[place]);
      keys.erase(place);
      line_up(place);
    };
    for (int i = 0; i < 300; ++i) {
      BlockKey key{};
      key[0] = static_cast<uint8_t>(rng() % 12);
      const int place = static_cast<int>(rng() % static_cast<unsigned>(n));
      const auto at = static_cast<size_t>(place);
      switch (rng() % 6) {
        case 0:
        case 1: {
          if (by_key.contains(key)) break;
          const int want = line.empty() ? PlaceIndex::kNone : line.front();
          ASSERT_EQ(index.put(key), want);
          if (want == PlaceIndex::kNone) break;
          forget(want);
          by_key[key] = want;
          keys[want] = key;
          hot[static_cast<size_t>(want)] = true;
          ++pins[static_cast<size_t>(want)];
          line.remove(want);
          ASSERT_FALSE(index.ready(want));
          index.set_ready(want);
          break;
        }
        case 2:
          if (pins[at] == 0) break;
          index.unpin(place);
          if (--pins[at] == 0) line_up(place);
          break;
        case 3:
          index.pin(place);
          ++pins[at];
          line.remove(place);
          break;
        case 4:
          hot[at] = rng() % 2;
          hot[at] ? index.touch(place) : index.cool(place);
          line_up(place);
          break;
        default:
          index.erase(place);
          forget(place);
      }
      ASSERT_EQ(index.count(), static_cast<int>(by_key.size()));
      for (uint8_t b = 0; b < 12; ++b) {
        key[0] = b;
        const auto found = by_key.find(key);
        ASSERT_EQ(index.find(key), found == by_key.end() ? PlaceIndex::kNone : found->second);
      }
    }
  }
}

// Blocks for which the pool has no room, and a file that answers when the test says so.
class TiersTest : public testing::Test {
 protected:
  static constexpr int kBlock = 2;
  CacheIndex cache(int blocks, const TierConfig& tiers, BlockSources sources = {}) {
    return CacheIndex(blocks, kBlock, true, 1, tiers, std::move(sources));
  }
  static BlockSources file(int records, const std::vector<StoredBlock>& stored = {}) {
    BlockSources sources;
    sources.push_back(std::make_unique<RecordSource>(records, 1, stored));
    return sources;
  }
  // Returns the keys of the leading blocks of `tokens`.
  static std::vector<BlockKey> keys_of(const Tokens& tokens) {
    std::vector<BlockKey> keys;
    BlockKey parent = root_key("model", "");
    for (size_t i = 0; i + kBlock <= tokens.size(); i += kBlock)
      keys.push_back(parent = child_key(parent, std::span(tokens).subspan(i, kBlock)));
    return keys;
  }
  // Fetches `tokens`; returns true if an answer is awaited.
  static bool ask(CacheIndex& cache, const Tokens& tokens) {
    BlockTable table;
    cache.open(table, tokens);
    const bool awaited = cache.fetch(table, tokens);
    cache.close(table);
    return awaited;
  }
  static std::vector<TierJob> answer_all(CacheIndex& cache, double seconds = 0) {
    std::vector<TierJob> jobs = cache.tiers().take_jobs();
    for (const TierJob& job : jobs) cache.tiers().done({job.id, /*ok=*/true, seconds});
    return jobs;
  }
  // Everything planned so far has been carried out.
  StepPlan step(CacheIndex& cache) {
    StepPlan plan;
    plan.step = ++step_;
    cache.finish(plan);
    cache.tiers().committed(step_);
    return plan;
  }
  void push_out(CacheIndex& cache) {
    BlockTable all;
    ASSERT_TRUE(cache.grow(all, cache.num_blocks() * kBlock));
    cache.close(all);
  }
  const Tokens tokens_{1, 2, 3, 4, 5, 6, 7};
  uint64_t step_ = 0;
};

TEST_F(TiersTest, EvictedBlocksComeBackFromHostMemory) {
  CacheIndex cache = this->cache(4, {.host_blocks = 8});
  BlockTable a = filled(cache, tokens_);
  cache.close(a);
  push_out(cache);
  const StepPlan saved = step(cache);
  ASSERT_EQ(saved.saves.size(), 3u);
  BlockTable b;
  ASSERT_EQ(cache.open(b, tokens_), 6);
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_FALSE(cache.fetch(b, tokens_)) << "there is no file to wait for";
  cache.begin(b, tokens_, 7);
  const StepPlan loaded = step(cache);
  ASSERT_EQ(loaded.loads.size(), 3u);
  for (const BlockCopy& load : loaded.loads) {
    const auto at = std::ranges::find(b.blocks, load.block) - b.blocks.begin();
    const auto from = std::ranges::find(saved.saves, load.host, &BlockCopy::host);
    ASSERT_NE(from, saved.saves.end());
    // Leaves are evicted first, so the blocks were saved from the last to the first.
    EXPECT_EQ(from - saved.saves.begin(), 2 - at);
  }
  EXPECT_EQ(cached(cache, tokens_), 6) << "they are findable on the device at once";
  EXPECT_EQ(cache.tiers().stats().host_tokens, 6u);
  cache.close(b);
}

TEST(TierCost, TheCheaperWayIsTakenAndTheOtherTriedAgain) {
  TierCost cost(/*block_size=*/4);
  RecentMean fetch;
  const auto copy_pays = [&] { return cost.pays(); };
  const auto fetch_pays = [&] {
    const bool pays = cost.pays(fetch.value());
    if (!pays) fetch.fade();
    return pays;
  };
  EXPECT_TRUE(copy_pays() && fetch_pays()) << "nothing is known yet";
  cost.step(/*rows=*/8, /*copies=*/2, /*seconds=*/9, /*copy_seconds=*/1);  // 4 a block, 0.5 a copy
  EXPECT_TRUE(copy_pays() && fetch_pays());
  fetch.add(5);
  EXPECT_TRUE(copy_pays());
  EXPECT_FALSE(fetch_pays());
  int refusals = 0;
  while (!fetch_pays()) ASSERT_LT(++refusals, 100);
  EXPECT_GT(refusals, 10);
  for (int i = 0; i < 100; ++i)
    cost.step(1, 1, 50, 49);  // a decode step says nothing about the
                              // cost of prompts
  EXPECT_FALSE(copy_pays()) << "copies of 49 against 4";
  for (int i = 0; i < 200; ++i) cost.step(8, 1, 8000, 1);
  EXPECT_TRUE(copy_pays() && fetch_pays()) << "computing costs more now";
  cost.step(8, 1, 0, 0);
  EXPECT_TRUE(copy_pays()) << "not measured";
}

TEST_F(TiersTest, BlocksThatAreCheaperToComputeStayWhereTheyAre) {
  CacheIndex cache = this->cache(4, {.host_blocks = 8});
  BlockTable a = filled(cache, tokens_);
  cache.close(a);
  push_out(cache);
  step(cache);
  cache.tiers().measured(/*rows=*/2, /*copies=*/3, /*seconds=*/31, /*copy_seconds=*/30);
  EXPECT_EQ(cached(cache, tokens_), 0) << "a copy takes 10, computing a block 1";
  EXPECT_EQ(cache.tiers().stats().recomputed, 1u);
  for (int i = 0; i < 60; ++i) cache.tiers().measured(2, 1, 2.1, 0.1);
  EXPECT_EQ(cached(cache, tokens_), 6);
}

TEST_F(TiersTest, AFileOutOfUseIsAskedForNothingAndRemembered) {
  CacheIndex cache = this->cache(4, {.host_blocks = 2, .fingerprint = "model"},
                                 file(9, {{0, keys_of(tokens_)[0]}}));
  ASSERT_TRUE(ask(cache, tokens_));
  cache.tiers().source_is({.usable = false});
  for (const TierJob& job : cache.tiers().take_jobs())
    cache.tiers().done({.job = job.id, .late = true});
  EXPECT_EQ(cache.tiers().stats().failures, 1u);
  EXPECT_EQ(cached(cache, tokens_), 0) << "the host block holds nothing";
  EXPECT_FALSE(ask(cache, tokens_));
  BlockTable other = filled(cache, {9, 9, 8, 8, 7, 7, 6, 6});
  cache.close(other);
  EXPECT_FALSE(cache.tiers().owes_saves()) << "nothing is saved for its sake";
  cache.tiers().source_is({.usable = true});
  EXPECT_TRUE(ask(cache, tokens_)) << "a late answer says nothing against the record";
  answer_all(cache);
  EXPECT_EQ(cached(cache, tokens_), 2);
}

TEST_F(TiersTest, AFileThatIsSlowerThanComputingIsNotRead) {
  CacheIndex cache = this->cache(4, {.host_blocks = 2, .fingerprint = "model"},
                                 file(9, {{0, keys_of(tokens_)[0]}}));
  ASSERT_TRUE(ask(cache, tokens_));
  cache.tiers().measured(2, 0, 1, 0);
  answer_all(cache, /*seconds=*/3);
  EXPECT_EQ(cached(cache, tokens_), 2) << "it is in host memory now";
  BlockTable other = filled(cache, {9, 9, 8, 8, 7, 7, 6, 6});
  cache.close(other);
  push_out(cache);  // whose blocks take all host memory
  step(cache);
  ASSERT_EQ(cached(cache, tokens_), 0);
  EXPECT_FALSE(ask(cache, tokens_));
  EXPECT_EQ(cache.tiers().stats().recomputed, 1u);
}

TEST_F(TiersTest, SaltsAndTheShyReachNoTier) {
  CacheIndex cache = this->cache(4, {.host_blocks = 8});
  BlockTable shy;
  shy.sharing.share = false;
  ASSERT_TRUE(cache.grow(shy, 7));
  cache.publish(shy, tokens_, 7);
  cache.close(shy);
  push_out(cache);
  EXPECT_TRUE(step(cache).saves.empty());
  BlockTable a;
  a.sharing.salt = "alice";
  ASSERT_TRUE(cache.grow(a, 7));
  cache.publish(a, tokens_, 7);
  cache.close(a);
  push_out(cache);
  EXPECT_EQ(step(cache).saves.size(), 3u);
  BlockTable b, c, d;
  b.sharing.salt = "bob";
  c.sharing.salt = "alice";
  d.sharing = {.share = false, .salt = "alice"};
  EXPECT_EQ(cache.open(b, tokens_), 0);
  EXPECT_EQ(cache.open(c, tokens_), 6);
  EXPECT_EQ(cache.open(d, tokens_), 0);
}

TEST_F(TiersTest, TheFileIsAskedOnceAndFailuresAreMisses) {
  CacheIndex cache = this->cache(4, {.host_blocks = 4, .spill = false}, file(8));
  BlockTable a = filled(cache, tokens_);
  cache.close(a);
  std::vector<TierJob> writes;
  for (int i = 0; i < 4; ++i) {
    step(cache);
    for (TierJob& job : cache.tiers().take_jobs()) {
      ASSERT_EQ(job.kind, TierJob::Kind::kWrite);
      cache.tiers().done({job.id, true});
      writes.push_back(std::move(job));
    }
  }
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_FALSE(cache.tiers().owes_saves());
  push_out(cache);
  step(cache);
  BlockTable other = filled(cache, {9, 9, 8, 8, 7, 7, 6, 6});  // takes all host memory
  cache.close(other);
  for (int i = 0; i < 4; ++i) {
    step(cache);
    answer_all(cache);
  }
  push_out(cache);
  step(cache);
  BlockTable b;
  const int here = cache.open(b, tokens_);
  ASSERT_LT(here, 6);
  ASSERT_TRUE(cache.fetch(b, tokens_));
  EXPECT_TRUE(cache.held(b));
  cache.close(b);
  const std::vector<TierJob> reads = cache.tiers().take_jobs();
  ASSERT_FALSE(reads.empty());
  for (size_t i = 0; i < reads.size(); ++i) {
    EXPECT_TRUE(cache.tiers().awaits_answer());
    cache.tiers().done({reads[i].id, i > 0});  // the first one fails
    EXPECT_FALSE(cache.held(b));
  }
  EXPECT_EQ(cache.open(b, tokens_), here) << "what follows a miss is of no use";
  EXPECT_FALSE(cache.fetch(b, tokens_)) << "nobody waits twice for one block";
  cache.close(b);
  EXPECT_EQ(cache.tiers().stats().failures, 1u);
}

TEST_F(TiersTest, AHostBlockOfAPlanInFlightIsNotReadInto) {
  const Tokens other{9, 9, 8};
  CacheIndex cache = this->cache(2, {.host_blocks = 1, .fingerprint = "model"},
                                 file(2, {{0, keys_of(tokens_)[0]}, {1, keys_of(other)[0]}}));
  BlockTable a = filled(cache, {tokens_[0], tokens_[1]});
  cache.close(a);
  push_out(cache);
  StepPlan plan;
  plan.step = 1;
  cache.finish(plan);
  ASSERT_EQ(plan.saves.size(), 1u);
  BlockTable b;
  cache.open(b, other);
  EXPECT_FALSE(cache.fetch(b, other)) << "the only host block is being saved to";
  EXPECT_EQ(cache.tiers().stats().skipped, 1u);
  cache.tiers().committed(1);
  EXPECT_TRUE(cache.fetch(b, other));
  ASSERT_EQ(cache.tiers().take_jobs().size(), 1u);
}

TEST_F(TiersTest, BlocksOfOtherExtrasAreOtherBlocksInEveryTier) {
  const Tokens tokens{9, 9, 9, 9, 9, 9};
  CacheIndex cache = this->cache(3, {.host_blocks = 8}, file(8));
  fill(cache, tokens, with_image("cat"));
  push_out(cache);
  EXPECT_EQ(step(cache).saves.size(), 3u);
  EXPECT_EQ(cached(cache, tokens, with_image("dog")), 2) << "the block before the image";
  EXPECT_EQ(cached(cache, tokens, with_image("cat")), 6);
  EXPECT_EQ(cached(cache, tokens, with_adapter("french")), 0);
  const std::vector<TierJob> stored = answer_all(cache);
  ASSERT_EQ(stored.size(), 3u);
  fill(cache, tokens, with_image("dog"));
  push_out(cache);
  step(cache);
  const std::vector<TierJob> more = answer_all(cache);
  ASSERT_EQ(more.size(), 2u) << "of the same tokens, and yet not in the file";
  for (const TierJob& job : more)
    for (const TierJob& before : stored) EXPECT_NE(job.key, before.key);
}

// The memory of a peer: it is read and never written.
class PeerSource final : public BlockSource {
 public:
  explicit PeerSource(std::vector<BlockKey> keys) : keys_(std::move(keys)) {}
  bool has(const BlockKey& key) const override {
    return std::ranges::find(keys_, key) != keys_.end();
  }
  int begin_fetch(const BlockKey& key) override {
    ++fetches;
    return static_cast<int>(std::ranges::find(keys_, key) - keys_.begin());
  }
  void end_fetch(int, const TierDone&) override { --fetches; }
  bool wants(const BlockKey&) const override { return false; }
  int begin_store(const BlockKey&) override { return kNone; }
  void end_store(int, bool) override { ADD_FAILURE() << "nothing was stored"; }
  int fetches = 0;  // under way

 private:
  std::vector<BlockKey> keys_;
};

class TwoSources : public TiersTest {
 protected:
  // The file has the first block of tokens_, the peer the first two.
  TwoSources() : keys_(keys_of(tokens_)) {
    BlockSources sources = file(8, {{5, keys_[0]}});
    auto peer = std::make_unique<PeerSource>(std::vector{keys_[0], keys_[1]});
    peer_ = peer.get();
    sources.push_back(std::move(peer));
    cache_ = std::make_unique<CacheIndex>(4, kBlock, true, 1,
                                          TierConfig{.host_blocks = 8, .fingerprint = "model"},
                                          std::move(sources));
  }
  // (source, record) of each job, in order.
  using Asked = std::vector<std::pair<int, int>>;
  static Asked asked(const std::vector<TierJob>& jobs) {
    Asked all;
    for (const TierJob& job : jobs) all.emplace_back(job.source, job.record);
    return all;
  }
  std::vector<BlockKey> keys_;
  PeerSource* peer_;
  std::unique_ptr<CacheIndex> cache_;
};

TEST_F(TwoSources, EachBlockComesFromTheFirstThatHasIt) {
  ASSERT_TRUE(ask(*cache_, tokens_));
  EXPECT_EQ(peer_->fetches, 1);
  EXPECT_EQ(asked(answer_all(*cache_)), (Asked{{0, 5}, {1, 1}}));
  EXPECT_EQ(peer_->fetches, 0);
  EXPECT_EQ(cached(*cache_, tokens_), 4);
  EXPECT_EQ(cache_->tiers().stats().reads, 2u);

  // A block that came from the peer is stored in the file, which lacks it; the peer is never
  // written.
  BlockTable table;
  cache_->open(table, tokens_);
  cache_->begin(table, tokens_, 7);
  EXPECT_EQ(step(*cache_).loads.size(), 2u);
  const std::vector<TierJob> stores = answer_all(*cache_);
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].kind, TierJob::Kind::kWrite);
  EXPECT_EQ(stores[0].source, 0);
  EXPECT_EQ(stores[0].key, keys_[1]);
  EXPECT_EQ(cache_->tiers().stats().file_tokens, 4u);
}

TEST_F(TwoSources, OneOutOfUseLeavesTheOther) {
  cache_->tiers().source_is({.source = 0, .usable = false});
  ASSERT_TRUE(ask(*cache_, tokens_));
  EXPECT_EQ(asked(answer_all(*cache_)), (Asked{{1, 0}, {1, 1}}));
  cache_->tiers().source_is({.source = 1, .usable = false});
  EXPECT_DEATH(cache_->tiers().source_is({.source = 2}), "no source 2");
}

TEST_F(TwoSources, OneThatIsSlowerThanComputingLeavesTheOther) {
  cache_->tiers().measured(/*rows=*/2, /*copies=*/0, /*seconds=*/1, /*copy_seconds=*/0);
  ASSERT_TRUE(ask(*cache_, tokens_));
  const std::vector<TierJob> jobs = cache_->tiers().take_jobs();
  ASSERT_EQ(asked(jobs), (Asked{{0, 5}, {1, 1}}));
  cache_->tiers().done({jobs[0].id, /*ok=*/true, /*seconds=*/3});
  cache_->tiers().done({.job = jobs[1].id, .seconds = 0.5, .late = true});
  fill(*cache_, {8, 8, 7, 7, 6, 6, 5, 5}, {});
  for (int i = 0; i < 3; ++i) {  // other blocks take all host memory
    fill(*cache_, {8, 8, 7, 7, 6, 6, i, 4}, {});
    fill(*cache_, {i, 5, 7, 7, 6, 6, 5, 5}, {});
    push_out(*cache_);
    step(*cache_);
    answer_all(*cache_);
  }
  ASSERT_EQ(cached(*cache_, tokens_), 0);
  ASSERT_TRUE(ask(*cache_, tokens_));
  EXPECT_EQ(asked(answer_all(*cache_)), (Asked{{1, 0}, {1, 1}})) << "the file takes 3, computing 1";
}

TEST_F(TiersTest, EverySourceThatWantsABlockGetsIt) {
  BlockSources two = file(8);
  two.push_back(std::make_unique<RecordSource>(8, 1));
  CacheIndex cache = this->cache(4, {.host_blocks = 1, .spill = false}, std::move(two));
  fill(cache, {1, 2}, {});
  EXPECT_EQ(step(cache).saves.size(), 1u);
  const std::vector<TierJob> jobs = cache.tiers().take_jobs();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(std::set({jobs[0].source, jobs[1].source}), (std::set{0, 1}));
  EXPECT_EQ(jobs[0].host_block, jobs[1].host_block);
  cache.tiers().done({jobs[0].id, /*ok=*/true});
  fill(cache, {3, 4}, {});
  EXPECT_TRUE(step(cache).saves.empty()) << "the other source still reads the only host block";
  cache.tiers().done({jobs[1].id, /*ok=*/false});
  EXPECT_EQ(step(cache).saves.size(), 1u);
}

TEST(PrefixTree, ALongChainIsCheap) {
  const int n = 200000;
  CacheIndex cache(n, 1, true);
  Tokens tokens(n);
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = i % 7;
  BlockTable a = filled(cache, tokens);
  cache.close(a);
  EXPECT_EQ(cached(cache, tokens), n);
  BlockTable b;
  EXPECT_TRUE(cache.grow(b, n));
  EXPECT_EQ(cache.evictions(), static_cast<uint64_t>(n));
}

}  // namespace
}  // namespace skiff::kv
