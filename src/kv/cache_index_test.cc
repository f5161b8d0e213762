#include "kv/cache_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

#include "kv/cache_testing.h"

namespace skiff::kv {
namespace {

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

}  // namespace
}  // namespace skiff::kv
