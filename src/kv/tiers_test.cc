#include "kv/tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kv/cache_testing.h"
#include "kv/record_source.h"
#include "kv/tier_cost.h"

namespace skiff::kv {
namespace {

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
    EXPECT_EQ(cache.held(b), i + 1 < reads.size()) << "the last one is waited for";
  }
  EXPECT_EQ(cache.open(b, tokens_), here) << "what follows a miss is of no use";
  EXPECT_FALSE(cache.fetch(b, tokens_)) << "nobody waits twice for one block";
  cache.close(b);
  EXPECT_EQ(cache.tiers().stats().failures, 1u);
}

TEST_F(TiersTest, ARenewedCacheFindsNothingUnderAnotherName) {
  CacheIndex cache = this->cache(4, {.host_blocks = 8, .fingerprint = "model"}, file(8));
  const auto fill_and_store = [&] {
    BlockTable table = filled(cache, tokens_);
    cache.close(table);
    for (int i = 0; i < 4; ++i) {
      step(cache);
      answer_all(cache);
    }
    push_out(cache);
    step(cache);
    answer_all(cache);
  };
  fill_and_store();
  ASSERT_EQ(cached(cache, tokens_), 6) << "host memory has it";
  cache.renew("another model");
  EXPECT_EQ(cache.num_unused(), 4) << "no block holds anything";
  EXPECT_EQ(cached(cache, tokens_), 0);
  EXPECT_FALSE(ask(cache, tokens_)) << "the file has it under a name that nobody asks for";
  fill_and_store();
  EXPECT_EQ(cached(cache, tokens_), 6) << "the cache works on";
  cache.renew("model");
  EXPECT_EQ(cached(cache, tokens_), 0) << "host memory is empty";
  EXPECT_TRUE(ask(cache, tokens_)) << "the file still has what the first model computed";
  answer_all(cache);
  EXPECT_EQ(cached(cache, tokens_), 6);
}

TEST_F(TiersTest, OnlyACacheAtRestIsRenewed) {
  CacheIndex cache = this->cache(4, {.host_blocks = 8, .fingerprint = "model"}, file(8));
  BlockTable table = filled(cache, tokens_);
  EXPECT_DEATH(cache.renew("x"), "blocks are in use");
  cache.close(table);
  EXPECT_TRUE(cache.tiers().at_rest());
  step(cache);
  EXPECT_FALSE(cache.tiers().at_rest()) << "jobs that store blocks";
  EXPECT_DEATH(cache.renew("x"), "at_rest");
  answer_all(cache);
  EXPECT_TRUE(cache.tiers().at_rest());
  cache.renew("x");
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

// Texts of three blocks each and one of one, all of them in the file; host memory holds four
// blocks.
class RoomInHostMemory : public TiersTest {
 protected:
  RoomInHostMemory() {
    std::vector<StoredBlock> stored;
    for (const Tokens& text : texts_)
      for (const BlockKey& key : keys_of(text))
        stored.push_back({static_cast<int>(stored.size()), key});
    cache_ = std::make_unique<CacheIndex>(
        12, kBlock, true, 1, TierConfig{.host_blocks = 4, .fingerprint = "model"}, file(9, stored));
  }
  bool fetch(BlockTable& table, const Tokens& text) {
    cache_->open(table, text);
    const bool awaited = cache_->fetch(table, text);
    cache_->close(table);
    return awaited;
  }
  const std::vector<Tokens> texts_{
      {1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2, 2}, {3, 3, 3}, {4, 4, 4, 4, 4, 4, 4}};
  std::unique_ptr<CacheIndex> cache_;
};

TEST_F(RoomInHostMemory, WhatASequenceFetchedIsNotTakenByTheNext) {
  BlockTable a, b;
  ASSERT_TRUE(fetch(a, texts_[0]));
  EXPECT_EQ(answer_all(*cache_).size(), 3u);
  EXPECT_FALSE(cache_->held(a));
  EXPECT_TRUE(fetch(b, texts_[1]));
  EXPECT_TRUE(cache_->held(b)) << "it waits for room";
  EXPECT_EQ(cache_->tiers().stats().waiting, 1);
  EXPECT_TRUE(cache_->tiers().take_jobs().empty());
  EXPECT_EQ(cache_->open(a, texts_[0]), 6) << "all that was fetched is still there";
  EXPECT_FALSE(cache_->fetch(a, texts_[0]));
  cache_->begin(a, texts_[0], 7);
  EXPECT_TRUE(cache_->held(b)) << "the plan that is being made reads the blocks";
  EXPECT_EQ(step(*cache_).loads.size(), 3u);
  EXPECT_FALSE(cache_->held(b));
  EXPECT_TRUE(fetch(b, texts_[1]));
  EXPECT_EQ(cache_->tiers().stats().waiting, 0);
  EXPECT_EQ(answer_all(*cache_).size(), 3u);
  EXPECT_EQ(cache_->open(b, texts_[1]), 6);
  cache_->begin(b, texts_[1], 7);
  cache_->close(a);
  cache_->close(b);
}

// Its room is counted as taken as long as its places are: of a sequence that has loaded all of its
// blocks, and of one that ends before it has.
TEST_F(RoomInHostMemory, WhatAPlanInFlightReadsTakesRoom) {
  BlockTable a, b;
  for (const int loads : {3, 2}) {
    const Tokens &first = texts_[loads == 3 ? 0 : 1], &second = texts_[loads == 3 ? 1 : 3];
    if (loads == 3) {
      ASSERT_TRUE(fetch(a, first));
      EXPECT_EQ(answer_all(*cache_).size(), 3u);
    }
    ASSERT_EQ(cache_->open(a, first), 6);
    cache_->begin(a, first, 7, loads);
    StepPlan plan;
    plan.step = ++step_;
    plan.tokens.push_back(1);
    cache_->finish(plan);
    EXPECT_EQ(plan.loads.size(), static_cast<size_t>(loads));
    cache_->close(a);
    a = BlockTable();  // the sequence has ended, but not the step
    EXPECT_TRUE(fetch(b, second));
    EXPECT_TRUE(cache_->held(b)) << "it waits for the step";
    EXPECT_TRUE(cache_->tiers().take_jobs().empty());
    cache_->tiers().committed(step_);
    EXPECT_FALSE(cache_->held(b));
    EXPECT_TRUE(fetch(b, second));
    EXPECT_EQ(answer_all(*cache_).size(), 3u);
    EXPECT_EQ(cache_->tiers().stats().skipped, 0u);
    std::swap(a, b);
    b = BlockTable();
  }
}

TEST_F(RoomInHostMemory, TheFirstThatWaitsIsNotOvertaken) {
  BlockTable b, c;
  {
    BlockTable a;
    ASSERT_TRUE(fetch(a, texts_[0]));
    ASSERT_TRUE(fetch(b, texts_[1]));
    EXPECT_TRUE(fetch(c, texts_[2])) << "there is room for its block, but not for the one before";
    EXPECT_EQ(answer_all(*cache_).size(), 3u);
    EXPECT_TRUE(cache_->held(b) && cache_->held(c));
  }
  EXPECT_FALSE(cache_->held(b) || cache_->held(c)) << "a sequence that has ended gives room back";
  {
    BlockTable earlier;  // comes before both in the scheduler's order
    EXPECT_TRUE(fetch(earlier, texts_[3]));
    answer_all(*cache_);
    EXPECT_TRUE(fetch(b, texts_[1]));
    EXPECT_TRUE(cache_->held(c)) << "it is not looked at while the one before it waits";
  }
  EXPECT_TRUE(fetch(b, texts_[1]));
  EXPECT_TRUE(fetch(c, texts_[2]));
  EXPECT_EQ(answer_all(*cache_).size(), 4u);
}

TEST_F(RoomInHostMemory, NotEverybodyWaits) {
  BlockTable a;
  ASSERT_TRUE(fetch(a, texts_[0]));
  {
    std::vector<BlockTable> others(300);
    int waiting = 0;
    for (BlockTable& other : others) waiting += fetch(other, texts_[1]);
    EXPECT_EQ(waiting, 256);
    EXPECT_EQ(cache_->tiers().stats().waiting, 256);
    EXPECT_EQ(cache_->tiers().stats().skipped, 44u);
  }
  EXPECT_EQ(cache_->tiers().stats().waiting, 0) << "those that have ended wait no more";
  answer_all(*cache_);
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

}  // namespace
}  // namespace skiff::kv
