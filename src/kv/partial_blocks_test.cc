// What a prompt has behind its last full block, as the cache hands it over and takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kv/cache_testing.h"
#include "kv/record_source.h"

namespace skiff::kv {
namespace {

using testing::ElementsAre;

constexpr int kBlock = 4;

// Takes every block that it has not.
class Shelf : public BlockSource {
 public:
  bool has(const BlockKey&) const override { return false; }
  int begin_fetch(const BlockKey&) override { return kNone; }
  void end_fetch(int, const TierDone&) override {}
  bool takes_partial() const override { return true; }
  bool wants(const BlockKey& key) const override { return !there.contains(key); }
  int begin_store(const BlockKey& key) override {
    there.insert(key);
    return static_cast<int>(there.size());
  }
  void end_store(int, bool) override {}
  std::set<BlockKey> there;
};

// Has what it was told to expect, and remembers what that was.
class Peer final : public Shelf {
 public:
  bool expects() const override { return true; }
  void expect(const Expected& expected) override {
    there.insert(expected.keys.begin(), expected.keys.end());
    asked.assign(expected.keys.begin(), expected.keys.end());
    tokens = expected.tokens;
  }
  bool has(const BlockKey& key) const override { return there.contains(key); }
  int begin_fetch(const BlockKey&) override { return 0; }
  bool wants(const BlockKey&) const override { return false; }
  std::vector<BlockKey> asked;
  int tokens = 0;
};

class PartialBlocks : public testing::Test {
 protected:
  template <class Source>
  CacheIndex cache(int blocks, int host_blocks, Source*& source) {
    BlockSources sources;
    sources.push_back(std::make_unique<RecordSource>(9, 1));
    auto own = std::make_unique<Source>();
    source = own.get();
    sources.push_back(std::move(own));
    return CacheIndex(blocks, kBlock, true, 1,
                      {.host_blocks = host_blocks,
                       .spill = false,
                       .fingerprint = "model",
                       .always_pays = true,
                       .hands_over = true},
                      std::move(sources));
  }
  static Tokens tokens(int count, Token last = 0) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(10 + i);
    if (last > 0) tokens.back() = last;
    return tokens;
  }
  static BlockKey full_key(const Tokens& tokens, int blocks) {
    BlockKey key = root_key("model", "");
    for (int i = 0; i < blocks; ++i)
      key = child_key(key, std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock));
    return key;
  }
  static BlockKey rest_key(const Tokens& tokens) {
    const int blocks = static_cast<int>(tokens.size()) / kBlock;
    return partial_key(full_key(tokens, blocks),
                       std::span(tokens).subspan(static_cast<size_t>(blocks) * kBlock));
  }
  StepPlan step(CacheIndex& cache) {
    StepPlan plan;
    plan.step = ++step_;
    cache.finish(plan);
    cache.tiers().committed(step_);
    return plan;
  }
  // Returns the jobs for the second source, which are answered like all others.
  static std::vector<TierJob> answer_all(CacheIndex& cache, bool ok = true) {
    std::vector<TierJob> jobs = cache.tiers().take_jobs();
    for (const TierJob& job : jobs) cache.tiers().done({job.id, ok});
    std::erase_if(jobs, [](const TierJob& job) { return job.source != 1; });
    return jobs;
  }
  // Returns the table of a sequence all of whose blocks were fetched, or failed to be.
  static BlockTable fetched(CacheIndex& cache, const Tokens& tokens, bool ok = true) {
    BlockTable table;
    EXPECT_TRUE(cache.expect(table, tokens, {.owner = 1, .prompt = tokens}));
    cache.open(table, tokens);
    EXPECT_TRUE(cache.fetch(table, tokens));
    cache.close(table);
    answer_all(cache, ok);
    return table;
  }
  uint64_t step_ = 0;
};

TEST_F(PartialBlocks, AreSavedBeforeAnythingOverwritesThem) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(4, 16, shelf);
  const Tokens text = tokens(11);
  BlockTable table = filled(cache, text);
  const BlockId last = table.blocks[2];
  cache.hand_over_rest(table, text);
  cache.close(table);
  EXPECT_TRUE(cache.tiers().owes_saves());
  EXPECT_EQ(cache.num_unused(), 1) << "it is kept, though its sequence has ended";
  const StepPlan plan = step(cache);
  ASSERT_EQ(plan.saves.size(), 3u);
  EXPECT_EQ(std::ranges::count(plan.saves, last, &BlockCopy::block), 1);
  EXPECT_EQ(cache.num_unused(), 2);
  EXPECT_FALSE(cache.tiers().owes_saves());
  const auto jobs = answer_all(cache);
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_THAT(jobs[2].tokens, ElementsAre(18, 19, 20));
  EXPECT_EQ(jobs[2].key, rest_key(text));
  EXPECT_TRUE(shelf->there.contains(rest_key(text)));
}

TEST_F(PartialBlocks, GoToNoFileAndIntoNoTree) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(8, 16, shelf);
  const Tokens text = tokens(11);
  BlockTable table = filled(cache, text);
  cache.hand_over_rest(table, text);
  step(cache);
  int to_file = 0, to_shelf = 0;
  for (const TierJob& job : cache.tiers().take_jobs()) {
    ++(job.source == 0 ? to_file : to_shelf);
    cache.tiers().done({job.id, true});
  }
  EXPECT_EQ(to_shelf, 3);
  EXPECT_EQ(to_file, 2) << "the full ones";
  EXPECT_EQ(cached(cache, text), 8);
  EXPECT_EQ(cached(cache, tokens(12)), 8);
  cache.close(table);
}

// A block that is full already may be known to others, whose it stays.
TEST_F(PartialBlocks, MayBeTheBeginningOfAFullOne) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(4, 16, shelf);
  const Tokens text = tokens(12), rest = tokens(11);
  BlockTable table = filled(cache, text);
  cache.hand_over_rest(table, rest);
  step(cache);
  answer_all(cache);
  EXPECT_TRUE(shelf->there.contains(rest_key(rest)) && shelf->there.contains(full_key(text, 3)));
  cache.close(table);
  EXPECT_EQ(cache.num_free(), 4);
  EXPECT_EQ(cached(cache, text), 12);
}

TEST_F(PartialBlocks, WhatIsNoneOrStandsAloneOrIsThereIsNotHandedOver) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(8, 8, shelf);
  for (const int count : {3, 8}) {
    const Tokens text = tokens(count);
    BlockTable table = filled(cache, text);
    step(cache);
    answer_all(cache);
    cache.hand_over_rest(table, text);
    EXPECT_FALSE(cache.tiers().owes_saves()) << count;
    cache.close(table);
  }
  const Tokens text = tokens(10);
  shelf->there.insert(rest_key(text));
  BlockTable table = filled(cache, text);
  step(cache);
  cache.hand_over_rest(table, text);
  EXPECT_FALSE(cache.tiers().owes_saves());
  cache.close(table);
  answer_all(cache);
}

// Who needs the device's last block gets it, behind a save of it in the same plan.
TEST_F(PartialBlocks, KeepNobodyFromStarting) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(3, 3, shelf);
  const Tokens text = tokens(11);
  BlockTable table = filled(cache, text), next;
  EXPECT_EQ(step(cache).saves.size(), 1u) << "as many as leave room for fetches";
  const BlockId last = table.blocks[2];
  cache.hand_over_rest(table, text);
  cache.close(table);
  EXPECT_EQ(cache.num_free(), 2);
  ASSERT_TRUE(cache.grow(next, 3 * kBlock));
  EXPECT_EQ(std::ranges::count(step(cache).saves, last, &BlockCopy::block), 1);
  EXPECT_FALSE(cache.tiers().owes_saves());
  cache.close(next);
  answer_all(cache);
}

// A block that others know by now holds those before it, which nobody uses.
TEST_F(PartialBlocks, KeepNobodyFromStartingOnceTheyAreFull) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(4, 16, shelf);
  const Tokens text = tokens(12);
  BlockTable table = filled(cache, text), next;
  const BlockId last = table.blocks[2];
  cache.hand_over_rest(table, tokens(11));
  cache.close(table);
  EXPECT_EQ(cache.num_free(), 3);
  ASSERT_TRUE(cache.grow(next, 3 * kBlock));
  EXPECT_GE(std::ranges::count(step(cache).saves, last, &BlockCopy::block), 1);
  EXPECT_FALSE(cache.tiers().owes_saves());
  cache.close(next);
  answer_all(cache);
}

TEST_F(PartialBlocks, WithoutAPlaceInHostMemoryAreLeftOut) {
  Shelf* shelf = nullptr;
  CacheIndex cache = this->cache(3, 1, shelf);
  const Tokens text = tokens(11);
  BlockTable table = filled(cache, text), next;
  EXPECT_EQ(step(cache).saves.size(), 1u);  // it is stored from the only host block
  cache.hand_over_rest(table, text);
  cache.close(table);
  EXPECT_TRUE(step(cache).saves.empty());
  EXPECT_TRUE(cache.tiers().owes_saves()) << "there will be a place";
  const uint64_t skipped = cache.tiers().stats().skipped;
  ASSERT_TRUE(cache.grow(next, 3 * kBlock));
  EXPECT_GT(cache.tiers().stats().skipped, skipped);
  EXPECT_FALSE(cache.tiers().owes_saves());
  step(cache);
  cache.close(next);
  answer_all(cache);
}

TEST_F(PartialBlocks, ComeBehindTheFullOnes) {
  Peer* peer = nullptr;
  CacheIndex cache = this->cache(8, 8, peer);
  const Tokens text = tokens(11);
  BlockTable table = fetched(cache, text);
  EXPECT_THAT(peer->asked, ElementsAre(full_key(text, 1), full_key(text, 2), rest_key(text)));
  EXPECT_EQ(peer->tokens, 11);
  ASSERT_EQ(cache.open(table, text), 11);
  Tokens known = text;
  known.push_back(99);  // the token whose row is computed
  cache.begin(table, known, 12);
  const StepPlan plan = step(cache);
  ASSERT_EQ(plan.loads.size(), 3u);
  EXPECT_EQ(plan.loads[2].block, table.blocks[2]);
  EXPECT_EQ(cache.tiers().stats().file_tokens, 11u);
  EXPECT_EQ(table.published, 2);
  EXPECT_EQ(cached(cache, known), 8) << "what is not full is nobody else's";
  cache.publish(table, known, 12);
  EXPECT_EQ(cached(cache, known), 12);
  cache.close(table);
}

TEST_F(PartialBlocks, AreLoadedLast) {
  Peer* peer = nullptr;
  CacheIndex cache = this->cache(8, 8, peer);
  const Tokens text = tokens(10);
  BlockTable table = fetched(cache, text);
  ASSERT_EQ(cache.open(table, text), 10);
  cache.begin(table, text, 11, /*most=*/2);
  EXPECT_EQ(step(cache).loads.size(), 2u);
  EXPECT_EQ(table.published, 2);
  cache.load(table, text, 2);
  EXPECT_EQ(step(cache).loads.size(), 1u);
  EXPECT_EQ(table.published, 2);
  EXPECT_TRUE(table.found.empty());
  cache.close(table);
}

// The rest of one text is found for no other, however they differ.
TEST_F(PartialBlocks, StandForTheirTokensOnly) {
  Peer* peer = nullptr;
  CacheIndex cache = this->cache(8, 8, peer);
  BlockTable table = fetched(cache, tokens(11));
  EXPECT_EQ(cached(cache, tokens(11)), 11);
  EXPECT_EQ(cached(cache, tokens(11, 7)), 8);
  EXPECT_EQ(cached(cache, tokens(10)), 8);
  EXPECT_EQ(cached(cache, tokens(12)), 8);
  EXPECT_EQ(cached(cache, tokens(11), {.salt = "other"}), 0);
  EXPECT_EQ(
      cached(cache, tokens(11), {.extras = {{.begin = 9, .end = 10, .identity = "an image"}}}), 8);
  const Tokens longer = tokens(19);
  cache.open(table, longer);
  EXPECT_EQ(table.keys.size(), 5u);
  EXPECT_EQ(table.keys[2], full_key(longer, 3)) << "that of the rest is forgotten";
  cache.close(table);
}

TEST_F(PartialBlocks, ThatDoNotComeAreComputed) {
  Peer* peer = nullptr;
  CacheIndex cache = this->cache(8, 8, peer);
  const Tokens text = tokens(11);
  BlockTable table;
  ASSERT_TRUE(cache.expect(table, text, {.owner = 1, .prompt = text}));
  cache.open(table, text);
  ASSERT_TRUE(cache.fetch(table, text));
  cache.close(table);
  for (const TierJob& job : cache.tiers().take_jobs())
    cache.tiers().done({job.id, job.key != rest_key(text)});
  EXPECT_EQ(cache.open(table, text), 8);
  EXPECT_FALSE(cache.fetch(table, text)) << "it is asked for once";
  cache.close(table);
}

// Nobody is asked for less than a block: it is computed as soon.
TEST_F(PartialBlocks, AloneAreNotAskedFor) {
  Peer* peer = nullptr;
  CacheIndex cache = this->cache(8, 8, peer);
  BlockTable table;
  EXPECT_FALSE(cache.expect(table, tokens(3), {.owner = 1}));
  fill(cache, tokens(8), {});
  EXPECT_FALSE(cache.expect(table, tokens(11), {.owner = 2}));
  EXPECT_TRUE(cache.expect(table, tokens(13), {.owner = 3}));
  EXPECT_EQ(peer->asked.size(), 2u);
  EXPECT_EQ(peer->tokens, 5);
  EXPECT_TRUE(cache.expect(table, tokens(16), {.owner = 3}));
  EXPECT_EQ(peer->asked.size(), 2u);
  EXPECT_EQ(peer->tokens, 8);
}

}  // namespace
}  // namespace skiff::kv
