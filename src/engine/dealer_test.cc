#include "engine/dealer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace skiff::engine {
namespace {

NewSequence request(SeqId id, const std::vector<Token>& prompt) {
  return {.id = id, .prompt = prompt, .params = {}, .stop = {}, .cache = {}};
}

// A prompt of `size` tokens that begins with `shared` tokens which all prompts have.
std::vector<Token> prompt_of(SeqId id, int size, int shared = 0) {
  std::vector<Token> prompt(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i)
    prompt[static_cast<size_t>(i)] = i < shared ? i : 1000 + static_cast<int>(id) * 977 + i;
  return prompt;
}

class DealerTest : public testing::Test {
 protected:
  void make(int replicas, size_t blocks = 1000, int max_seqs = 64) {
    dealer_.emplace(Dealer::Options{
        .replicas = replicas, .block_size = 8, .blocks = blocks, .max_seqs = max_seqs, .seed = 5});
    free_.assign(static_cast<size_t>(replicas), 1000);
  }
  int deal(SeqId id, const std::vector<Token>& prompt) {
    const NewSequence one = request(id, prompt);
    return dealer_->deal({&one, 1}, free_);
  }
  void says(SeqId id, int tokens) {
    dealer_->hear({.seq = id, .tokens = std::vector<Token>(static_cast<size_t>(tokens), 1)});
  }
  void ends(SeqId id) { EXPECT_TRUE(dealer_->hear({.seq = id, .finish = Finish::kStop})); }

  std::optional<Dealer> dealer_;
  std::vector<int> free_;
};

TEST_F(DealerTest, TheLeastTokensDecide) {
  make(3);
  EXPECT_EQ(deal(1, prompt_of(1, 50)), 0);
  EXPECT_EQ(deal(2, prompt_of(2, 20)), 1);
  EXPECT_EQ(deal(3, prompt_of(3, 10)), 2);
  EXPECT_EQ(deal(4, prompt_of(4, 5)), 2);   // 15 tokens there, 20 and 50 elsewhere
  EXPECT_EQ(deal(5, prompt_of(5, 10)), 2);  // not in turn: 15 are still the fewest
  EXPECT_EQ(deal(6, prompt_of(6, 1)), 1);
}

TEST_F(DealerTest, WhoWantsAReplicaGetsIt) {
  make(3);
  std::vector<NewSequence> choices{request(1, prompt_of(1, 50)), request(2, prompt_of(1, 50))};
  for (NewSequence& one : choices) one.replica = 2;
  EXPECT_EQ(dealer_->deal(choices, free_), 2);
  NewSequence again = request(3, prompt_of(3, 10));
  again.replica = 2;
  EXPECT_EQ(dealer_->deal({&again, 1}, free_), 2) << "though two others have nothing to do";
  EXPECT_EQ(dealer_->replica_of(2), 2);
  EXPECT_EQ(dealer_->load(2).sequences, 3);
  EXPECT_EQ(deal(4, prompt_of(4, 10)), 0) << "its load counts for those that want none";
}

TEST_F(DealerTest, WhoContinuesASequenceStaysWithIt) {
  make(2);
  EXPECT_EQ(deal(1, prompt_of(1, 50)), 0);
  NewSequence rest = request(2, prompt_of(2, 60));
  rest.continues = 1;
  EXPECT_EQ(dealer_->deal({&rest, 1}, free_), 0) << "the other replica has nothing to do";
  ends(1);
  ends(2);
  rest = request(3, prompt_of(3, 60));
  rest.continues = 1;  // it has ended
  EXPECT_EQ(dealer_->deal({&rest, 1}, free_), 0);
  EXPECT_EQ(dealer_->load(0).queued, 60);
}

TEST_F(DealerTest, AnEmptiedCacheIsWorthNothing) {
  make(2);
  EXPECT_EQ(deal(1, prompt_of(1, 60, 48)), 0);
  ends(1);
  EXPECT_EQ(deal(2, prompt_of(2, 20)), 0);
  dealer_->forget(0);
  EXPECT_EQ(deal(3, prompt_of(3, 60, 48)), 1) << "20 tokens run on the first replica";
  EXPECT_EQ(dealer_->load(1).queued, 60);
}

TEST_F(DealerTest, ACachedPrefixIsWorthItsTokens) {
  make(2);
  EXPECT_EQ(deal(1, prompt_of(1, 60, 48)), 0);
  ends(1);
  EXPECT_EQ(deal(2, prompt_of(2, 60, 48)), 0) << "the prefix is there";
  // 12 + 12 tokens on the first replica, 60 on the other.
  EXPECT_EQ(deal(3, prompt_of(3, 60, 48)), 0);
  says(2, 1);
  // The first has 12 + 61 of others and lacks 12, the second lacks 60.
  EXPECT_EQ(deal(4, prompt_of(4, 60, 48)), 1) << "affinity must not pile requests up";
  EXPECT_EQ(deal(5, prompt_of(5, 60, 48)), 1) << "it has the prefix now, too";
}

TEST_F(DealerTest, AConversationStaysWhereItIs) {
  make(4);
  std::vector<int> homes;
  std::vector<std::vector<Token>> talks;
  SeqId id = 0;
  talks.reserve(8);
  for (SeqId i = 100; i < 108; ++i) talks.push_back(prompt_of(i, 64));
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<SeqId> open;
    for (size_t i = 0; i < talks.size(); ++i) {
      open.push_back(++id);
      const int home = deal(id, talks[i]);
      if (turn == 0) homes.push_back(home);
      EXPECT_EQ(home, homes[i]) << "turn " << turn << " of " << i;
      talks[i].insert(talks[i].end(), 32, static_cast<Token>(7 + turn));
    }
    for (const SeqId done : open) ends(done);
  }
  for (int replica = 0; replica < 4; ++replica)
    EXPECT_EQ(std::ranges::count(homes, replica), 2) << "the first turns are spread";
}

TEST_F(DealerTest, SaltExtrasAndUnsharedRequestsHaveOtherPrefixes) {
  make(2);
  NewSequence first = request(1, prompt_of(1, 60));
  first.cache.salt = "a";
  EXPECT_EQ(dealer_->deal({&first, 1}, free_), 0);
  const auto names = [](const NewSequence& s) { return block_names(s, 8, 5); };
  NewSequence other = first;
  EXPECT_EQ(names(other), names(first));
  EXPECT_EQ(names(first).size(), 7u) << "the last of 60 tokens is computed in any case";
  other.cache.salt = "b";
  EXPECT_NE(names(other).front(), names(first).front());
  other = first;
  other.cache.extras = {{.begin = 20, .end = 24, .identity = "image"}};
  EXPECT_EQ(names(other)[1], names(first)[1]);
  EXPECT_NE(names(other)[2], names(first)[2]);
  EXPECT_NE(names(other)[6], names(first)[6]);
  other = first;
  other.cache.share = false;
  EXPECT_TRUE(names(other).empty());
  other = first;
  other.prompt.resize(16);
  EXPECT_EQ(names(other).size(), 1u);
  EXPECT_NE(block_names(first, 8, 6), names(first)) << "the seed is part of a name";
}

TEST_F(DealerTest, FullReplicasComeLast) {
  make(2);
  free_ = {2, 1000};
  EXPECT_EQ(deal(1, prompt_of(1, 17)), 1) << "16 tokens are free on the first";
  EXPECT_EQ(deal(2, prompt_of(2, 16)), 0);
  EXPECT_EQ(deal(3, prompt_of(3, 1)), 1) << "what is free there is spoken for";
  make(2, 1000, /*max_seqs=*/1);
  EXPECT_EQ(deal(1, prompt_of(1, 10)), 0);
  EXPECT_EQ(deal(2, prompt_of(2, 100)), 1);
  EXPECT_EQ(deal(3, prompt_of(3, 10)), 0) << "where all are full, tokens decide again";
  make(2);
  free_ = {10, 20};
  EXPECT_EQ(deal(1, prompt_of(1, 10)), 1) << "where tokens are equal, free blocks decide";
}

TEST_F(DealerTest, ChoicesStayTogetherAndCountTheirPromptOnce) {
  make(2);
  std::vector<NewSequence> choices;
  for (SeqId id = 1; id <= 3; ++id) choices.push_back(request(id, prompt_of(9, 60)));
  EXPECT_EQ(dealer_->deal(choices, free_), 0);
  for (SeqId id = 1; id <= 3; ++id) EXPECT_EQ(dealer_->replica_of(id), 0);
  EXPECT_EQ(dealer_->load(0), (Dealer::Load{.queued = 60 + 4 + 4, .running = 0, .sequences = 3}));
}

TEST_F(DealerTest, WhatEndsIsForgottenToTheLastToken) {
  make(2, 50);
  std::mt19937_64 rng(1);
  std::vector<SeqId> open;
  SeqId id = 0;
  for (int i = 0; i < 2000; ++i) {
    if (open.size() < 20 || rng() % 2) {
      deal(++id, prompt_of(rng() % 9, 1 + static_cast<int>(rng() % 90), 16));
      open.push_back(id);
    }
    const SeqId one = open[rng() % open.size()];
    if (rng() % 2) says(one, 1 + static_cast<int>(rng() % 3));
    if (rng() % 3 == 0) {
      ends(one);
      std::erase(open, one);
      EXPECT_EQ(dealer_->replica_of(one), std::nullopt);
      EXPECT_FALSE(dealer_->hear({.seq = one, .finish = Finish::kStop}));
    }
  }
  for (const SeqId one : open) ends(one);
  for (const int replica : {0, 1}) EXPECT_EQ(dealer_->load(replica), Dealer::Load{});
}

TEST(SeenBlocks, ForgetsTheEndsOfOldTextsFirst) {
  SeenBlocks seen(6);
  const std::vector<BlockName> a{1, 2, 3, 4}, b{5, 6, 7};
  EXPECT_EQ(seen.match(a), 0u);
  seen.see(a);
  EXPECT_EQ(seen.match(a), 4u);
  seen.see(b);
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(seen.match(a), 3u);
  EXPECT_EQ(seen.match(b), 3u);
  seen.see(std::vector<BlockName>{1, 2});
  seen.see(std::vector<BlockName>{8, 9});
  EXPECT_EQ(seen.match(a), 2u);
  EXPECT_EQ(seen.match(b), 2u) << "1 and 2 were seen again, so 3 and then 7 went";
  SeenBlocks none(0);
  none.see(a);
  EXPECT_EQ(none.match(a), 0u);
}

}  // namespace
}  // namespace skiff::engine
