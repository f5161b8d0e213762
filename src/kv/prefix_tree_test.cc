#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include "kv/cache_testing.h"

namespace skiff::kv {
namespace {

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

// Salts that collide under one seed must not do so under all.
TEST(PrefixTree, TheHashOfASaltNeedsTheSeed) {
  static std::vector<uint64_t> seen;
  const CacheSharing alice{.salt = "alice", .extras = {}}, bob{.salt = "bob", .extras = {}};
  for (const uint64_t seed : {1, 2}) {
    BlockPool pool(1);
    PrefixTree tree(pool, 2, seed, [](uint64_t mixed, BlockId, std::span<const Token>) {
      seen.push_back(mixed);
      return mixed;
    });
    for (const CacheSharing& sharing : {alice, bob}) tree.match(Tokens{1, 2}, sharing);
  }
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_NE(seen[0] ^ seen[1], seen[2] ^ seen[3]);
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
