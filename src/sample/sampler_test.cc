#include "sample/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace skiff::sample {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kVocab = 53;

// Returns logits that depend on the sequence's name and all its tokens, as a model's would.
std::vector<float> model(uint64_t name, const std::vector<Token>& history) {
  uint64_t key = name;
  for (const Token t : history) key = key * 31 + static_cast<uint64_t>(t) + 7;
  std::vector<float> out;
  out.reserve(kVocab);
  for (int i = 0; i < kVocab; ++i) {
    out.push_back(static_cast<float>(8 * uniform_draw(key, static_cast<uint64_t>(i)) - 3));
  }
  return out;
}

// Returns the rows that draw the next token of each slot.
std::vector<DrawRow> next_of(const std::vector<int>& slots) {
  std::vector<DrawRow> rows;
  rows.reserve(slots.size());
  for (const int slot : slots) rows.push_back({.slot = slot});
  return rows;
}

class SamplerTest : public testing::Test {
 protected:
  static Tensor rows_of(std::vector<float>& values) {
    return host_tensor(values.data(), DType::kF32,
                       {static_cast<int64_t>(values.size()) / kVocab, kVocab});
  }
  // Some sequences, each with a history that grows with every step.
  struct Running {
    uint64_t name;
    int slot;
    std::vector<Token> history;
  };
  SampleOutput step(Sampler& sampler, std::vector<Running*> running) {
    std::vector<float> logits;
    std::vector<int> slots;
    for (const Running* r : running) {
      const std::vector<float> row = model(r->name, r->history);
      logits.insert(logits.end(), row.begin(), row.end());
      slots.push_back(r->slot);
    }
    SampleOutput out = sampler.sample(rows_of(logits), next_of(slots));
    for (size_t i = 0; i < running.size(); ++i) running[i]->history.push_back(out.tokens[i]);
    return out;
  }
  static OpenSlot opening(const Running& r, int prompt_len, const SamplingParams& params) {
    return {.slot = r.slot, .params = params, .history = r.history, .prompt_len = prompt_len};
  }

  std::unique_ptr<Ops> ops = make_reference_ops();
};

SamplingParams lively(uint64_t seed) {
  SamplingParams params;
  params.temperature = 1.3f;
  params.top_p = 0.95f;
  params.repetition = 1.1f;
  params.frequency = 0.4f;
  params.presence = -0.2f;
  params.min_tokens = 6;
  params.bad_words = {{3}, {1, 2}, {5, 6, 7}};
  params.logit_bias = {{10, 0.5f}, {20, -1}, {0, 1.5f}};
  params.seed = seed;
  return params;
}

TEST_F(SamplerTest, NeitherBatchNorSlotNorPreemptionShows) {
  Sampler alone({kVocab, 1}, *ops);
  Running a{.name = 4, .slot = 0, .history = {9, 8, 7}};
  alone.open(opening(a, 3, lively(77)));
  for (int i = 0; i < 40; ++i) step(alone, {&a});

  Sampler busy({kVocab, 5}, *ops);
  Running b{.name = 4, .slot = 3, .history = {9, 8, 7}};
  Running other{.name = 5, .slot = 1, .history = {1}},
      third{.name = 6, .slot = 4, .history = {2, 2}};
  busy.open(opening(other, 1, lively(1)));
  busy.open(opening(b, 3, lively(77)));
  busy.open(opening(third, 2, {}));
  for (int i = 0; i < 40; ++i) {
    if (i == 13) {  // thrown out, then back in another slot
      b.slot = 0;
      busy.open(opening(b, 3, lively(77)));
    }
    if (i % 3 == 0)
      step(busy, {&other, &b, &third});
    else if (i % 3 == 1)
      step(busy, {&b, &other});
    else
      step(busy, {&third, &b});
  }
  EXPECT_EQ(a.history, b.history);
}

// Over equal logits the draw is the uniform itself.
TEST_F(SamplerTest, DrawsAreNumberedByOutput) {
  SamplingParams params;
  params.seed = 12345;
  Sampler sampler({kVocab, 1}, *ops);
  std::vector<Token> history = {1, 2, 3};
  for (int i = 0; i < 30; ++i) {
    if (i % 10 == 0) {
      sampler.open({.slot = 0, .params = params, .history = history, .prompt_len = 3});
    }
    std::vector<float> logits(kVocab, 1.5f);
    const std::vector<int> slots = {0};
    history.push_back(sampler.sample(rows_of(logits), next_of(slots)).tokens[0]);
    EXPECT_EQ(history.back(),
              static_cast<Token>(kVocab * uniform_draw(12345, static_cast<uint64_t>(i))));
  }
}

TEST_F(SamplerTest, SeedsDiffer) {
  Sampler sampler({kVocab, 2}, *ops);
  Running a{.name = 1, .slot = 0, .history = {}}, b{.name = 1, .slot = 1, .history = {}};
  SamplingParams params;
  params.temperature = 5;
  sampler.open(opening(a, 0, params));
  params.seed = 1;
  sampler.open(opening(b, 0, params));
  for (int i = 0; i < 10; ++i) step(sampler, {&a, &b});
  EXPECT_NE(a.history, b.history);
}

TEST_F(SamplerTest, GreedyTakesTheBest) {
  Sampler sampler({kVocab, 1}, *ops);
  SamplingParams params;
  params.temperature = 0;
  Running a{.name = 3, .slot = 0, .history = {1, 2}};
  sampler.open(opening(a, 2, params));
  const std::vector<float> row = model(3, a.history);
  const auto best = std::max_element(row.begin(), row.end()) - row.begin();
  EXPECT_THAT(step(sampler, {&a}).tokens, ElementsAre(best));
}

TEST_F(SamplerTest, NoRowsIsNoWork) {
  Sampler sampler({kVocab, 1}, *ops);
  std::vector<float> none;
  const SampleOutput out = sampler.sample(rows_of(none), {});
  EXPECT_THAT(out.tokens, IsEmpty());
  EXPECT_THAT(out.logprobs, IsEmpty());
  EXPECT_THAT(sampler.prompt_logprobs(rows_of(none), {}, 3), IsEmpty());
}

// Rank 1 is the largest; a log-probability is the logit less log(sum exp).
void expect_position(const PositionLogprobs& got, const std::vector<float>& logits, Token chosen,
                     int n) {
  double sum = 0;
  int rank = 1;
  for (const float x : logits) {
    sum += std::exp(static_cast<double>(x));
    rank += x > logits[static_cast<size_t>(chosen)];
  }
  // Logits here are below 8 in size: a few roundings of numbers below 16.
  constexpr double kBound = 1e-5;
  EXPECT_EQ(got.chosen.token, chosen);
  EXPECT_NEAR(got.chosen.logprob, logits[static_cast<size_t>(chosen)] - std::log(sum), kBound);
  EXPECT_EQ(got.rank, rank);
  std::vector<Token> ids(kVocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](Token a, Token b) {
    const float of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  ASSERT_EQ(got.top.size(), static_cast<size_t>(n));
  for (size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(got.top[i].token, ids[i]);
    EXPECT_NEAR(got.top[i].logprob, logits[static_cast<size_t>(ids[i])] - std::log(sum), kBound);
  }
}

TEST_F(SamplerTest, LogprobsAreOfRawLogitsAndAsManyAsAsked) {
  const std::vector<int> wanted = {5, kNoLogprobs, 0, kAllLogprobs, 5, kVocab + 1, 1};
  Sampler sampler({kVocab, 7}, *ops);
  std::vector<Running> running;
  for (int i = 0; i < 7; ++i) {
    running.push_back({.name = static_cast<uint64_t>(i), .slot = 6 - i, .history = {1, 2, i}});
    SamplingParams params = lively(static_cast<uint64_t>(i));
    params.logit_bias = {{10, 30.0f}};  // decides the draw, but must not affect the reported
                                        // log-probabilities
    params.logprobs = wanted[static_cast<size_t>(i)];
    sampler.open(opening(running.back(), 3, params));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<Running*> all;
    std::vector<std::vector<float>> raw;
    for (Running& r : running) {
      all.push_back(&r);
      raw.push_back(model(r.name, r.history));
    }
    const SampleOutput out = step(sampler, all);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(out.tokens[i], 10);
      ASSERT_EQ(out.logprobs[i].has_value(), wanted[i] != kNoLogprobs);
      if (out.logprobs[i]) {
        expect_position(*out.logprobs[i], raw[i], out.tokens[i], std::min(wanted[i], kVocab));
      }
    }
  }
}

TEST_F(SamplerTest, PromptLogprobs) {
  Sampler sampler({kVocab, 1}, *ops);
  const std::vector<Token> next = {4, 0, kVocab - 1};
  std::vector<float> logits;
  for (uint64_t r = 0; r < 3; ++r) {
    const std::vector<float> row = model(r, {});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  const std::vector<float> before = logits;
  for (int n : {0, 1, 5, kVocab, kAllLogprobs}) {
    const std::vector<PositionLogprobs> got = sampler.prompt_logprobs(rows_of(logits), next, n);
    ASSERT_EQ(got.size(), 3u);
    for (uint64_t r = 0; r < 3; ++r) {
      expect_position(got[r], model(r, {}), next[r], std::min(n, kVocab));
    }
  }
  EXPECT_EQ(logits, before);
}

TEST_F(SamplerTest, AcceptCountsLikeSampling) {
  SamplingParams params = lively(5);
  Sampler one({kVocab, 1}, *ops), other({kVocab, 1}, *ops);
  Running a{.name = 2, .slot = 0, .history = {1}}, b = a;
  one.open(opening(a, 1, params));
  other.open(opening(b, 1, params));
  for (int i = 0; i < 8; ++i) step(one, {&a});
  b.history = a.history;
  other.accept(0, std::span(b.history).subspan(1));
  for (int i = 0; i < 8; ++i) {
    step(one, {&a});
    step(other, {&b});
  }
  EXPECT_EQ(a.history, b.history);
}

// Slots that other sequences take over, with other rules or none, keep nothing of the former
// sequence.
TEST_F(SamplerTest, SlotsForgetWhoHadThem) {
  Sampler used({kVocab, 2}, *ops);
  for (uint64_t round = 0; round < 6; ++round) {
    SamplingParams params = round % 3 ? lively(round) : SamplingParams{.seed = round};
    if (round % 2) params.logit_bias = {{static_cast<Token>(round), 4.0f}, {9, -3.0f}};
    Sampler fresh({kVocab, 2}, *ops);
    Running a{.name = round, .slot = 0, .history = {1, 2}}, b{.name = 9, .slot = 1, .history = {3}};
    Running c = a, d = b;
    for (Sampler* s : {&used, &fresh}) {
      s->open(opening(a, 2, params));
      s->open(opening(b, 1, params));
    }
    for (int i = 0; i < 9; ++i) {
      step(used, {&a, &b});
      step(fresh, {&c, &d});
    }
    EXPECT_EQ(a.history, c.history);
    EXPECT_EQ(b.history, d.history);
  }
}

// Two draws are in flight, so the host does not know the token of the one before when it starts the
// next; slots are taken over meanwhile.
TEST_F(SamplerTest, PenaltiesCountTokensThatTheHostDoesNotKnow) {
  constexpr int kSlots = 3;
  Sampler ahead({kVocab, kSlots, kSlots, 70}, *ops), plain({kVocab, kSlots}, *ops);
  std::vector<Running> a;
  for (uint64_t round = 0; round < 4; ++round) {
    a.clear();
    for (int i = 0; i < kSlots; ++i) {
      a.push_back({.name = round * 10 + static_cast<uint64_t>(i), .slot = i, .history = {4, i, 4}});
      SamplingParams params = lively(round);
      params.min_tokens = 0;
      params.bad_words = {{3}};
      if (i == 1) params.repetition = 1;
      for (Sampler* s : {&ahead, &plain}) s->open(opening(a.back(), 2, params));
    }
    // Logits depend on the step alone, so that many tokens are drawn again and again.
    std::optional<PendingDraw> pending;
    std::vector<std::vector<Token>> got, want;
    for (uint64_t i = 0; i < 60; ++i) {
      std::vector<float> logits, same;
      for (const Running& r : a) {
        const std::vector<float> row = model(r.name + i % 2, {});
        logits.insert(logits.end(), row.begin(), row.end());
      }
      same = logits;
      want.push_back(plain.sample(rows_of(same), next_of({0, 1, 2})).tokens);
      ASSERT_FALSE(ahead.needs_pending(next_of({0, 1, 2})));
      const PendingDraw draw = ahead.start(rows_of(logits), next_of({0, 1, 2}));
      if (pending) got.push_back(ahead.finish(*pending).tokens);
      pending = draw;
    }
    got.push_back(ahead.finish(*pending).tokens);
    EXPECT_EQ(got, want);
  }
}

// The last tokens of a prompt may be output of a sequence that this one continues.
TEST_F(SamplerTest, PenaltiesCountWhatWasWrittenIntoThePrompt) {
  Sampler sampler({kVocab, 2}, *ops);
  const Running running{.name = 1, .slot = 0, .history = {5, 4}};
  OpenSlot slot = opening(running, 2, {.temperature = 0, .presence = 1});
  const auto best = [&] {
    std::vector<float> logits(kVocab, 0);
    logits[4] = 1.5f;
    logits[5] = 1;
    sampler.open(slot);
    return sampler.sample(rows_of(logits), next_of({0})).tokens.at(0);
  };
  EXPECT_EQ(best(), 4);
  slot.written = 1;
  EXPECT_EQ(best(), 5);
  slot.written = 2;
  EXPECT_EQ(best(), 4);
}

// All tokens differ, and steps in flight draw behind the last token that the context has room for.
TEST_F(SamplerTest, PenaltiesHaveRoomForAContext) {
  constexpr int kContext = 10;
  Sampler sampler({kVocab, 2, 2, kContext}, *ops);
  Running a{.name = 1, .slot = 1, .history = {40, 41, 42}};
  SamplingParams params{.temperature = 0, .repetition = 1e6f};
  sampler.open(opening(a, 3, params));
  while (a.history.size() < kContext + 2) {
    std::vector<float> logits(kVocab, 1.0f);
    a.history.push_back(sampler.sample(rows_of(logits), next_of({1})).tokens[0]);
  }
  EXPECT_THAT(std::span(a.history).subspan(3), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  std::vector<float> logits(kVocab, 1.0f);
  EXPECT_DEATH(sampler.sample(rows_of(logits), next_of({1})), "12 tokens seen");
  a.history.push_back(50);
  EXPECT_DEATH(sampler.open(opening(a, 3, params)), "13 distinct tokens, room for 12");
}

// What a sampler says that it takes grows by what penalties need: a list for each slot.
TEST_F(SamplerTest, ListsOfSeenTokensAreCounted) {
  const auto bytes = [](int slots, int context) {
    return Sampler::bytes({}, {kVocab, slots, 4, context});
  };
  EXPECT_EQ(bytes(3, 20) - bytes(3, 10), size_t{3} * 10 * 2 * sizeof(int32_t));
  EXPECT_EQ(bytes(3, 10 * kVocab), bytes(3, 0));
}

// Biases do not depend on drawn tokens, and penalties are counted where Ops computes, so the host
// need not wait for the tokens.
TEST_F(SamplerTest, OnlyRulesThatLookBackWait) {
  Sampler sampler({kVocab, 1}, *ops);
  std::vector<float> logits(kVocab, 0);
  const std::vector<DrawRow> slots = next_of({0});
  const auto waits = [&](const SamplingParams& params) {
    sampler.open({.slot = 0, .params = params, .history = {1}, .prompt_len = 1});
    const PendingDraw draw = sampler.start(rows_of(logits), slots);
    const bool out = sampler.needs_pending(slots);
    sampler.finish(draw);
    return out;
  };
  EXPECT_FALSE(waits({}));
  EXPECT_FALSE(waits({.logit_bias = {{3, 1.0f}}}));
  EXPECT_FALSE(waits({.bad_words = {{3}}}));
  EXPECT_TRUE(waits({.bad_words = {{3, 4}}}));
  EXPECT_FALSE(waits({.repetition = 1.5f}));
  EXPECT_FALSE(waits({.presence = 1}));
  EXPECT_FALSE(waits({.frequency = 1}));
  EXPECT_TRUE(waits({.min_tokens = 2}));
}

// Drafts of rules that look back are checked depth after depth.
TEST_F(SamplerTest, ManyDepthsInOneTurnEqualManyTurns) {
  Sampler sampler({kVocab, 3}, *ops), plain({kVocab, 3}, *ops);
  Running a{.name = 2, .slot = 0, .history = {1}}, b{.name = 9, .slot = 2, .history = {4}};
  Running c = a, d = b;
  for (Sampler* s : {&sampler, &plain}) {
    s->open(opening(a, 1, lively(3)));
    s->open(opening(b, 1, lively(4)));
  }
  for (int i = 0; i < 6; ++i) step(plain, {&c, &d});
  for (int i = 0; i < 2; ++i) {
    step(sampler, {&a, &b});
    step(sampler, {&b});
    step(sampler, {&b});
  }
  for (int i = 0; i < 4; ++i) step(sampler, {&a});
  EXPECT_EQ(a.history, c.history);
  EXPECT_EQ(b.history, d.history);
}

// Rules that do not look back: biases, a banned token, min_tokens already reached.
SamplingParams steady(uint64_t seed) {
  return {.temperature = 1.2f,
          .top_p = 0.97f,
          .seed = seed,
          .min_tokens = 1,
          .logit_bias = {{10, 0.5f}, {20, -1}},
          .bad_words = {{3}}};
}

// One row for each guess in the same draw: kept tokens are those of decoding, to the last bit of
// log-probabilities; wrong guesses, and all behind them, have no effect.
TEST_F(SamplerTest, GuessesInOneDrawEqualDecoding) {
  constexpr int kSlots = 4, kOutput = 40, kMaxGuesses = 5;
  Sampler plain({kVocab, kSlots}, *ops),
      guessing({kVocab, kSlots, kSlots * (1 + kMaxGuesses)}, *ops);
  std::vector<Running> a;
  std::vector<std::vector<PositionLogprobs>> reports(kSlots), wants(kSlots);
  for (int i = 0; i < kSlots; ++i) {
    a.push_back({.name = static_cast<uint64_t>(i), .slot = kSlots - 1 - i, .history = {5, i}});
    SamplingParams params = i == 1 ? SamplingParams{.temperature = 0} : steady(40u + i);
    if (i == 2) params.logprobs = 3;
    for (Sampler* s : {&plain, &guessing}) {
      s->open(opening(a.back(), 2, params));
      if (params.min_tokens > 0) s->accept(a.back().slot, std::vector<Token>{7});
    }
    a.back().history.push_back(7);
  }
  std::vector<Running> b = a;
  for (int i = 0; i < kOutput + kMaxGuesses; ++i) {
    std::vector<Running*> all;
    all.reserve(a.size());
    for (Running& r : a) all.push_back(&r);
    SampleOutput out = step(plain, all);
    for (size_t s = 0; s < a.size(); ++s)
      if (out.logprobs[s]) wants[s].push_back(*out.logprobs[s]);
  }
  std::mt19937_64 rng(1);
  int kept = 0, refused = 0;
  while (std::ranges::any_of(b, [&](const Running& r) { return r.history.size() < kOutput; })) {
    std::vector<DrawRow> rows;
    std::vector<size_t> owner;
    std::vector<float> logits;
    const auto add = [&](size_t s, const DrawRow& row, const std::vector<Token>& context) {
      const std::vector<float> values = model(b[s].name, context);
      logits.insert(logits.end(), values.begin(), values.end());
      rows.push_back(row);
      owner.push_back(s);
    };
    for (size_t s = 0; s < b.size(); ++s) add(s, {.slot = b[s].slot}, b[s].history);
    int raw = guessing.raw_room(rows);
    for (size_t s = 0; s < b.size(); ++s) {
      const int guesses = static_cast<int>(rng() % (kMaxGuesses + 1));
      if (!guessing.draws_at_once(b[s].slot, guesses, raw)) continue;
      std::vector<Token> context = b[s].history;
      int after = static_cast<int>(s);
      for (int d = 1; d <= guesses && context.size() < a[s].history.size(); ++d) {
        const Token guess = rng() % 4 ? a[s].history[context.size()] : Token{8};
        context.push_back(guess);
        add(s, {.slot = b[s].slot, .depth = d, .after = after, .guess = guess}, context);
        after = static_cast<int>(rows.size()) - 1;
      }
    }
    const PendingDraw draw = guessing.start(rows_of(logits), rows);
    SampleOutput out = guessing.finish(draw);
    for (size_t r = 0; r < rows.size(); ++r) {
      (out.tokens[r] == kNoToken ? refused : kept) += rows[r].depth > 0;
      if (out.tokens[r] == kNoToken) {
        EXPECT_FALSE(out.logprobs[r]);
        continue;
      }
      b[owner[r]].history.push_back(out.tokens[r]);
      if (out.logprobs[r]) reports[owner[r]].push_back(*out.logprobs[r]);
    }
  }
  for (size_t s = 0; s < b.size(); ++s) {
    a[s].history.resize(std::min(a[s].history.size(), b[s].history.size()));
    b[s].history.resize(a[s].history.size());
    EXPECT_EQ(a[s].history, b[s].history) << "sequence " << s;
    ASSERT_EQ(reports[s].empty(), wants[s].empty());
    for (size_t i = 0; i < std::min(reports[s].size(), wants[s].size()); ++i) {
      EXPECT_EQ(reports[s][i].chosen.token, wants[s][i].chosen.token);
      EXPECT_EQ(reports[s][i].chosen.logprob, wants[s][i].chosen.logprob);
      EXPECT_EQ(reports[s][i].rank, wants[s][i].rank);
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(refused, 20);
}

TEST_F(SamplerTest, OneDrawTakesGuessesOnlyWhereRulesDoNotNeedThem) {
  Sampler sampler({kVocab, 3}, *ops);
  const auto at_once = [&](const SamplingParams& params, int guesses) {
    sampler.open({.slot = 0, .params = params, .history = {1}, .prompt_len = 1});
    int raw = sampler.raw_room(next_of({0}));
    return sampler.draws_at_once(0, guesses, raw);
  };
  EXPECT_TRUE(at_once({}, 5));
  EXPECT_TRUE(at_once({.logit_bias = {{3, 1.0f}}, .bad_words = {{3}}}, 5));
  EXPECT_FALSE(at_once({.repetition = 1.5f}, 1));
  EXPECT_FALSE(at_once({.min_tokens = 2}, 1));
  EXPECT_FALSE(at_once({.bad_words = {{3, 4}}}, 1));
  // A row of raw logits per slot is kept for log-probabilities: of three, one is the next token's.
  EXPECT_TRUE(at_once({.logprobs = 0}, 2));
  EXPECT_FALSE(at_once({.logprobs = 0}, 3));
}

// With rows behind them that nobody draws, and behind guesses whose verdict the host does not know.
TEST_F(SamplerTest, WholeDrawsGiveTheTokensOfOthers) {
  constexpr int kMost = 6;
  std::vector<int32_t> refused(3, 0);
  const Checking checking{.refused = host_tensor(refused.data(), DType::kI32, {3})};
  Sampler plain({kVocab, 3, kMost}, *ops, checking), whole({kVocab, 3, kMost}, *ops, checking);
  for (Sampler* s : {&plain, &whole})
    for (const int slot : {0, 2})
      s->open({.slot = slot,
               .params = {.temperature = 1.2f, .top_p = 0.97f, .seed = 7u + slot},
               .history = {1},
               .prompt_len = 1});
  Upload upload(*ops, 2 * Sampler::column_bytes(kMost));
  uint64_t name = 0;
  const auto draw = [&](const std::vector<DrawRow>& rows) {
    std::vector<float> logits;
    for (int r = 0; r < kMost; ++r) {
      const std::vector<float> row = model(++name, {});
      logits.insert(logits.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(whole.draws_plainly(rows));
    upload.begin();
    const DrawColumns columns = whole.whole_columns(upload, rows, kMost);
    upload.done_with(ops->mark());
    std::pair<PendingDraw, PendingDraw> both{plain.start(rows_of(logits), rows),
                                             whole.begin(rows, kMost)};
    whole.draw(rows_of(logits), columns);
    ops->copy(both.second.host_tokens, both.second.tokens);
    const Token *want = both.first.host_tokens.as<Token>(),
                *got = both.second.host_tokens.as<Token>();
    EXPECT_TRUE(std::equal(want, want + rows.size(), got)) << "draws " << name;
    for (size_t r = rows.size(); r < kMost; ++r) {
      const auto row = logits.begin() + static_cast<long>(r) * kVocab;
      EXPECT_EQ(got[r], std::max_element(row, row + kVocab) - row);
    }
    return both;
  };
  int wrong = 0;
  for (int i = 0; i < 40; ++i) {
    const Token guess = i % kVocab;
    const auto first =
        draw({{.slot = 2}, {.slot = 0}, {.slot = 2, .depth = 1, .after = 0, .guess = guess}});
    refused[2] = first.first.host_tokens.as<Token>()[0] == guess ? 0 : 1;
    wrong += refused[2];
    const auto second = draw(next_of({0, 2}));
    for (const auto& [want, got] : {first, second})
      EXPECT_EQ(plain.finish(want).tokens, whole.finish(got).tokens);
  }
  EXPECT_GT(wrong, 20);
}

TEST_F(SamplerTest, OnlyDrawsThatNeedNothingElseAreWhole) {
  const auto is_plain = [&](const SamplingParams& params, DraftRule rule = {}) {
    Sampler sampler({kVocab, 2}, *ops, {.how = {.rule = rule}});
    sampler.open({.slot = 0, .params = {}, .history = {1}, .prompt_len = 1});
    sampler.open({.slot = 1, .params = params, .history = {1}, .prompt_len = 1});
    return sampler.draws_plainly(next_of({0, 1}));
  };
  EXPECT_TRUE(is_plain({.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 5}));
  EXPECT_TRUE(is_plain({}, DraftRule::kGreedy));
  EXPECT_FALSE(is_plain({}, DraftRule::kTopP));
  EXPECT_FALSE(is_plain({.repetition = 1.5f}));
  EXPECT_FALSE(is_plain({.logprobs = 0}));
  EXPECT_FALSE(is_plain({.logit_bias = {{3, 1.0f}}}));
  EXPECT_FALSE(is_plain({.bad_words = {{3}}}));
}

TEST_F(SamplerTest, ADrawBehindPendingGuessesIsABug) {
  Sampler sampler({kVocab, 1, 2}, *ops);
  sampler.open({.slot = 0, .history = {1}, .prompt_len = 1});
  std::vector<float> logits = model(1, {}), more = model(2, {});
  logits.insert(logits.end(), more.begin(), more.end());
  const std::vector<DrawRow> rows = {{.slot = 0}, {.slot = 0, .depth = 1, .after = 0, .guess = 4}};
  sampler.start(rows_of(logits), rows);
  EXPECT_DEATH(sampler.start(rows_of(more), next_of({0})), "guesses in a draw");
}

TEST(SamplerDeathTest, UnopenedSlot) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  Sampler sampler({kVocab, 2}, *ops);
  const Token token = 1;
  EXPECT_DEATH(sampler.accept(1, {&token, 1}), "slot 1 is not open");
  EXPECT_DEATH(sampler.accept(2, {&token, 1}), "slot 2 is not open");
  EXPECT_DEATH(sampler.open({.slot = 2}), "slot 2 of 2");
}

// What a draw reports of one row in each mode, beside what is computed here from the same logits.
class ReportedTest : public SamplerTest {
 protected:
  PositionLogprobs reported(LogprobsMode mode, const SamplingParams& params) {
    Sampler sampler({.vocab = kVocab, .max_slots = 2, .logprobs = mode}, *ops);
    SamplingParams silent = params;
    silent.logprobs = kNoLogprobs;
    Running plain{
        .name = 5, .slot = 0, .history = {1, 2}};  // a neighbour without log-probabilities
    sampler.open(opening(plain, 2, silent));
    sampler.open(opening(row_, 2, params));
    Running here = row_;
    const SampleOutput out = step(sampler, {&plain, &here});
    EXPECT_FALSE(out.logprobs[0]);
    EXPECT_EQ(out.logprobs[1]->chosen.token, out.tokens[1]);
    return out.logprobs[1].value();
  }
  std::vector<float> logits() const { return model(row_.name, row_.history); }
  // Biased logits over the temperature; -inf but for the `keep` largest.
  static std::vector<float> shaped(std::vector<float> x, const SamplingParams& p, int keep) {
    for (const auto& [token, bias] : p.logit_bias) x[static_cast<size_t>(token)] += bias;
    std::vector<float> sorted = x;
    std::ranges::sort(sorted, std::greater());
    const float least = sorted[static_cast<size_t>(keep) - 1];
    for (float& v : x)
      v = v < least ? -std::numeric_limits<float>::infinity()
                    : v / (p.temperature == 0 ? 1 : p.temperature);
    return x;
  }
  static std::vector<float> normalized(std::vector<float> x) {
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    for (float& v : x) v -= static_cast<float>(std::log(sum));
    return x;
  }
  // Sums and logarithms are of numbers below 16 in float32: some steps of 2^-20 each.
  static void expect_values(const PositionLogprobs& got, const std::vector<float>& want) {
    constexpr float kTolerance = 1e-5f;
    const auto expect_one = [&](const TokenLogprob& one) {
      const float exact = want[static_cast<size_t>(one.token)];
      if (std::isinf(exact))
        EXPECT_EQ(one.logprob, exact) << one.token;
      else
        EXPECT_NEAR(one.logprob, exact, kTolerance) << one.token;
    };
    expect_one(got.chosen);
    for (const TokenLogprob& one : got.top) expect_one(one);
    EXPECT_TRUE(std::ranges::is_sorted(got.top, std::greater(), &TokenLogprob::logprob));
  }
  static SamplingParams params(float temperature) {
    SamplingParams p;
    p.temperature = temperature;
    p.top_k = 4;
    p.logit_bias = {{10, 6.0f}, {20, -3}, {7, 2.5f}};
    p.seed = 9;
    p.logprobs = 6;
    return p;
  }

  const Running row_{.name = 11, .slot = 1, .history = {4, 3}};
};

TEST_F(ReportedTest, RawOnesAreOfTheModelsLogits) {
  for (const float temperature : {0.0f, 0.7f}) {
    expect_values(reported(LogprobsMode::kRawLogprobs, params(temperature)), normalized(logits()));
    expect_values(reported(LogprobsMode::kRawLogits, params(temperature)), logits());
  }
}

TEST_F(ReportedTest, ProcessedOnesAreOfWhatIsDrawnFrom) {
  const SamplingParams p = params(0.7f);
  const std::vector<float> x = shaped(logits(), p, 4);
  expect_values(reported(LogprobsMode::kProcessedLogprobs, p), normalized(x));
  const PositionLogprobs got = reported(LogprobsMode::kProcessedLogits, p);
  expect_values(got, x);
  EXPECT_TRUE(std::isfinite(got.top[3].logprob));
  EXPECT_TRUE(std::isinf(got.top[4].logprob));
}

// Its tokens do not depend on temperature or top_k, and neither does what is reported of them.
TEST_F(ReportedTest, GreedyOnesAreEditedAlone) {
  const SamplingParams p = params(0);
  const std::vector<float> x = shaped(logits(), p, kVocab);
  expect_values(reported(LogprobsMode::kProcessedLogprobs, p), normalized(x));
  expect_values(reported(LogprobsMode::kProcessedLogits, p), x);
}

TEST_F(ReportedTest, TokensAreTheSameInEachMode) {
  const SamplingParams p = params(1.4f);
  const Token token = reported(LogprobsMode::kRawLogprobs, p).chosen.token;
  for (const LogprobsMode mode :
       {LogprobsMode::kProcessedLogprobs, LogprobsMode::kRawLogits, LogprobsMode::kProcessedLogits})
    EXPECT_EQ(reported(mode, p).chosen.token, token);
}

}  // namespace
}  // namespace skiff::sample
