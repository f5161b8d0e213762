// Drafts from texts, against searches that look at every place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "draft/ngram_table.h"
#include "draft/proposer.h"
#include "draft/suffix_automaton.h"

namespace skiff::draft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<Token>;

// A text in which tokens follow their predecessors more or less often.
Tokens random_text(std::mt19937_64& rng, size_t size) {
  const uint64_t vocab = 2 + rng() % 30, chance = 1 + rng() % 10;
  Tokens text{0};
  while (text.size() < size)
    text.push_back(static_cast<Token>(
        rng() % chance == 0 ? rng() % vocab : static_cast<uint64_t>(text.back() * 7 + 3) % vocab));
  return text;
}

// Returns the last place before the end of `text` where its last n tokens end; 0: nowhere.
int place_of(std::span<const Token> text, int n) {
  for (auto end = std::ssize(text) - 1; end >= n; --end)
    if (std::equal(text.end() - n, text.end(), text.begin() + end - n))
      return static_cast<int>(end);
  return 0;
}

TEST(Continuation, GoesOnInWhatItHasCopied) {
  const Tokens text{1, 2, 3, 1, 2};
  EXPECT_THAT(continuation(text, 2, 7), ElementsAre(3, 1, 2, 3, 1, 2, 3));
  EXPECT_THAT(continuation(text, 1, 2), ElementsAre(2, 3));
  EXPECT_THAT(continuation(text, 1, 0), IsEmpty());
}

TEST(Continuation, EndsAtABreak) {
  EXPECT_THAT(continuation(Tokens{1, 2, kBreak, 1}, 1, 5), ElementsAre(2));
  EXPECT_THAT(continuation(Tokens{1, kBreak, 1}, 1, 5), IsEmpty());
}

TEST(NgramTable, FindsTheLastPlace) {
  std::mt19937_64 rng(3);
  long found = 0, missed = 0;
  for (int round = 0; round < 40; ++round) {
    const Tokens text = random_text(rng, 300);
    const int n = 1 + static_cast<int>(rng() % 6);
    NgramTable table(n);
    for (int size = 1; size <= std::ssize(text); ++size) {
      const auto known = std::span(text).first(static_cast<size_t>(size));
      if (size > n) table.add(text, size - 1);
      const int want = place_of(known, n), got = table.find(known);
      // A bucket that is full forgets, but what it still has is right.
      ASSERT_TRUE(got == want || got == 0) << "text of " << size << ", n " << n;
      found += got > 0;
      missed += got != want;
    }
  }
  EXPECT_GT(found, 5000);
  EXPECT_LT(missed * 100, found);
}

TEST(NgramTable, FindsWhatStoodInOlderLevels) {
  Tokens text(50000);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(i);
  text.insert(text.end(), {7, 8, 9});
  NgramTable table(3);
  for (int end = 3; end < std::ssize(text); ++end) table.add(text, end);
  EXPECT_EQ(table.find(text), 10);
}

// Returns the length of the longest suffix that ends elsewhere, too.
int longest_of(std::span<const Token> text) {
  int longest = 0;
  while (longest + 1 < std::ssize(text) && place_of(text, longest + 1) > 0) ++longest;
  return longest;
}

TEST(SuffixAutomaton, FindsTheLongestSuffixThatStoodBefore) {
  std::mt19937_64 rng(4);
  long found = 0;
  for (int round = 0; round < 60; ++round) {
    const Tokens text = random_text(rng, 2 + rng() % 150);
    SuffixAutomaton automaton(rng());
    for (size_t size = 1; size <= text.size(); ++size) {
      automaton.add(text[size - 1]);
      const auto known = std::span(text).first(size);
      const auto [length, end] = automaton.longest();
      ASSERT_EQ(length, longest_of(known)) << "text of " << size;
      if (length == 0) continue;
      ASSERT_LT(end, std::ssize(known));
      ASSERT_TRUE(std::equal(known.end() - length, known.end(), known.begin() + end - length));
      ++found;
    }
  }
  EXPECT_GT(found, 2000);
}

Proposer proposer(const std::string& method, int tokens = 3, int min = 1, int max = 2) {
  return Proposer({.method = method, .tokens = tokens, .min_ngram = min, .max_ngram = max});
}

// Returns a place where the last n tokens of `text` end and `drafts` follow; 0: there is none.
int follows(const Tokens& text, std::span<const Token> drafts, int n) {
  for (auto end = std::ssize(text) - 1; end >= n; --end) {
    if (!std::equal(text.end() - n, text.end(), text.begin() + end - n)) continue;
    const Tokens next = continuation(text, static_cast<int>(end), static_cast<int>(drafts.size()));
    if (std::ranges::equal(next, drafts)) return static_cast<int>(end);
  }
  return 0;
}

OpenSlot slot_of(int slot, Tokens history, Tokens reference = {}) {
  const auto prompt = static_cast<int>(history.size());
  return {.slot = slot,
          .params = {},
          .history = std::move(history),
          .prompt_len = prompt,
          .stop_tokens = {},
          .reference = std::move(reference)};
}

TEST(Proposer, LooksForTheLongestNgramFirst) {
  Proposer p = proposer("ngram");
  p.open(slot_of(0, {1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 1}));
  p.read_on();
  // "1 2 3" stood at the beginning, "2 3" without the 1 later.
  EXPECT_THAT(p.next(0, Tokens{2, 3}), ElementsAre(4, 9, 2));
  EXPECT_THAT(p.next(0, Tokens{8}), IsEmpty());
}

TEST(Proposer, FollowsAPlaceWhileItIsRight) {
  Proposer p = proposer("ngram");
  // Behind "5 6" the last time came 9; behind "1 2 5 6" it was 7.
  p.open(slot_of(0, {1, 2, 5, 6, 7, 8, 5, 6, 9, 1}));
  p.read_on();
  EXPECT_THAT(p.next(0, Tokens{2}), ElementsAre(5, 6, 7));
  EXPECT_THAT(p.next(0, Tokens{5, 6}), ElementsAre(7, 8, 5));
}

// What follows guesses is what would follow if they were the text, as far as that was read.
TEST(Proposer, GoesOnBehindGuesses) {
  std::mt19937_64 rng(5);
  long found = 0;
  for (int round = 0; round < 400; ++round) {
    const Tokens text = random_text(rng, 40 + rng() % 100),
                 guesses = random_text(rng, 1 + rng() % 3);
    const int n = 1 + static_cast<int>(rng() % 3);
    Proposer p = proposer("ngram", 5, n, n);
    p.open(slot_of(0, text));
    p.read_on();
    Tokens guessed = text;
    guessed.insert(guessed.end(), guesses.begin(), guesses.end());
    const Tokens drafts = p.next(0, {}, guesses);
    ASSERT_GE(drafts.size(), guesses.size());
    ASSERT_TRUE(std::equal(guesses.begin(), guesses.end(), drafts.begin()));
    // The last n tokens stood before, and what follows there is drafted.
    if (drafts.size() > guesses.size()) {
      ASSERT_EQ(drafts.size(), 5u);
      const int place = follows(guessed, std::span(drafts).subspan(guesses.size()), n);
      ASSERT_GT(place, 0) << "round " << round;
      ++found;
    }
    // The guesses are forgotten.
    Proposer other = proposer("ngram", 5, n, n);
    other.open(slot_of(0, text));
    other.read_on();
    other.next(0, {});
    ASSERT_EQ(p.next(0, Tokens{0, 1}), other.next(0, Tokens{0, 1}));
  }
  EXPECT_GT(found, 100);
}

TEST(Proposer, DraftsFromTheReference) {
  for (const char* method : {"ngram", "suffix", "inference_with_reference"}) {
    Proposer p = proposer(method);
    p.open(slot_of(0, {1}, {20, 21, 22, 23}));
    p.read_on();
    EXPECT_THAT(p.next(0, Tokens{20, 21}), ElementsAre(22, 23)) << method;
    EXPECT_THAT(p.next(0, Tokens{22, 23}), IsEmpty()) << method << ": it ends there";
  }
}

TEST(Proposer, ASuffixGetsNoMoreDraftsThanItIsLong) {
  Proposer p = proposer("suffix", 5);
  p.open(slot_of(0, {1, 2, 3, 4, 5, 6, 7, 1}));
  p.read_on();
  EXPECT_THAT(p.next(0, Tokens{2}), ElementsAre(3, 4));
  EXPECT_THAT(p.next(0, Tokens{3}), ElementsAre(4, 5, 6));
}

TEST(Proposer, ASlotThatStartsAgainForgets) {
  Proposer p = proposer("ngram");
  p.open(slot_of(3, {1, 2, 3, 1}));
  p.read_on();
  EXPECT_THAT(p.next(3, Tokens{2}), ElementsAre(3, 1, 2));
  p.open(slot_of(3, {5, 6, 1}));
  p.read_on();
  EXPECT_THAT(p.next(3, Tokens{2}), IsEmpty());
}

TEST(Proposer, SequencesThatArePooledGetNone) {
  Proposer p = proposer("ngram");
  OpenSlot open = slot_of(0, {1, 1, 1});
  open.pooling.rows = Pooling::kLast;
  p.open(open);
  p.read_on();
  EXPECT_THAT(p.next(0, {}), IsEmpty());
}

// A long prompt is read over several steps, during which there are no drafts.
TEST(Proposer, ReadsABoundedPartOfALongTextInAStep) {
  for (const char* method : {"ngram", "suffix"}) {
    Proposer p = proposer(method);
    Tokens text;
    for (int64_t i = 0; i < 3 * Proposer::kReadOn; ++i) text.push_back(static_cast<Token>(i % 500));
    p.open(slot_of(0, text));
    p.open(slot_of(1, Tokens(100, 5)));
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(p.next(0, {}), IsEmpty()) << method;
      EXPECT_THAT(p.next(1, {}), IsEmpty()) << method;
      p.read_on();
    }
    EXPECT_THAT(p.next(0, {}), testing::SizeIs(3)) << method;
    p.read_on();
    EXPECT_THAT(p.next(1, {}), testing::SizeIs(3)) << method;
  }
}

}  // namespace
}  // namespace skiff::draft
