#include "sample/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "ops/ops.h"
#include "sample/edit_store.h"
#include "sample/slot_bans.h"
#include "sample/token_counts.h"

namespace skiff::sample {
namespace {

using testing::ElementsAre;

constexpr int kVocab = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

// A sequence and its sampling parameters.
struct Sequence {
  SamplingParams params;
  SlotState slot;
  OpenSlot opening;
  void accept(Token token) {
    slot.accept(token);
    opening.history.push_back(token);
  }
};

// Applies all rules to one row of logits.
std::vector<float> edited(const Sequence& s, std::vector<float> logits) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  EditList biases(biases_of(s.params, kVocab));
  SlotBans bans(s.slot, kVocab);
  Penalty penalty = penalty_of(s.params);
  Staging staging(*ops);
  EditStore store(*ops, staging, kVocab, 1);
  TokenCounts counts(*ops, staging, kVocab, 1, kVocab);
  counts.open(s.opening, penalty.counts_prompt());
  const Tensor row = host_tensor(logits.data(), DType::kF32, {1, kVocab});
  store.begin(row);
  store.add(0, biases);
  store.apply();
  int32_t zero = 0;
  const Tensor first = host_tensor(&zero, DType::kI32, {1});
  const auto number = [](float& value) { return host_tensor(&value, DType::kF32, {1}); };
  counts.penalize(row, {.row = first,
                        .slot = first,
                        .divide = number(penalty.divide),
                        .once = number(penalty.once),
                        .each = number(penalty.each)});
  store.add(0, bans.list());
  store.apply();
  return logits;
}

const std::vector<float> kLogits = {4, -2, 1, -1, 3, 0.5f, -8, 2};

Sequence state(const SamplingParams& params, std::vector<Token> history, int prompt_len,
               std::vector<Token> stop = {}) {
  const OpenSlot opening{.slot = 0,
                         .params = params,
                         .history = std::move(history),
                         .prompt_len = prompt_len,
                         .stop_tokens = std::move(stop)};
  return {.params = params, .slot = SlotState(opening), .opening = opening};
}

std::vector<Token> banned(const Sequence& slot) {
  const std::vector<float> after = edited(slot, kLogits);
  std::vector<Token> out;
  for (Token t = 0; t < kVocab; ++t) {
    const float x = after[static_cast<size_t>(t)];
    if (x == -kInf)
      out.push_back(t);
    else
      EXPECT_EQ(x, kLogits[static_cast<size_t>(t)]);
  }
  return out;
}

TEST(Rules, TheirOrderIsTheContract) {
  std::vector<std::string_view> names;
  for (const Rule& rule : rules()) names.push_back(rule.name);
  EXPECT_THAT(names, ElementsAre("bad_words", "min_tokens", "logit_bias", "repetition",
                                 "presence_and_frequency"));
}

TEST(Rules, BiasIsAddedThenDividedThenPenalized) {
  SamplingParams params;
  params.logit_bias = {{0, 2.0f}, {1, 5.0f}, {2, -4.0f}};
  params.repetition = 2;
  params.presence = 0.5f;
  params.frequency = 0.25f;
  // 0 twice in the output, 1 and 2 once, 3 in the prompt only.
  EXPECT_THAT(edited(state(params, {3, 0, 1, 0, 2}, 1), kLogits),
              ElementsAre((4 + 2) / 2.0f - 1, (-2 + 5) / 2.0f - 0.75f, (1 - 4) * 2.0f - 0.75f, -2,
                          3, 0.5f, -8, 2));
}

TEST(Rules, BansOutliveAllOtherRules) {
  SamplingParams params;
  params.bad_words = {{0}};
  params.min_tokens = 9;
  params.logit_bias = {{0, 100.0f}, {4, 100.0f}};
  params.repetition = 0.5f;
  params.presence = -2;
  const std::vector<float> after = edited(state(params, {0, 4}, 0, {4}), kLogits);
  EXPECT_EQ(after[0], -kInf);
  EXPECT_EQ(after[4], -kInf);
}

TEST(Rules, NothingAskedNothingEdited) {
  EXPECT_THAT(edited(state({}, {1, 2, 3}, 2, {5}), kLogits), kLogits);
}

TEST(Rules, RepetitionCountsPromptAndOutput) {
  SamplingParams params;
  params.repetition = 4;
  EXPECT_THAT(edited(state(params, {0, 0, 1, 2}, 3), kLogits),
              ElementsAre(1, -8, 0.25f, -1, 3, 0.5f, -8, 2));
}

TEST(Rules, PresenceAndFrequencyCountOutputOnly) {
  SamplingParams params;
  params.presence = 1;
  Sequence slot = state(params, {0, 0, 0, 4}, 3);
  EXPECT_THAT(edited(slot, kLogits), ElementsAre(4, -2, 1, -1, 2, 0.5f, -8, 2));
  params.presence = 0;
  params.frequency = -0.5f;
  slot = state(params, {0, 4, 4}, 1);
  slot.accept(4);
  slot.accept(0);
  EXPECT_THAT(edited(slot, kLogits), ElementsAre(4.5f, -2, 1, -1, 4.5f, 0.5f, -8, 2));
}

TEST(Rules, StopTokensWaitForMinTokens) {
  SamplingParams params;
  params.min_tokens = 2;
  Sequence slot = state(params, {1, 1, 1}, 3, {5, 6});
  EXPECT_THAT(banned(slot), ElementsAre(5, 6));
  slot.accept(1);
  EXPECT_THAT(banned(slot), ElementsAre(5, 6));
  slot.accept(1);
  EXPECT_THAT(banned(slot), ElementsAre());
  EXPECT_THAT(banned(state(params, {1, 1, 1}, 1, {5})), ElementsAre());
}

TEST(Rules, BadWordsBanTheLastTokenAfterThePrefix) {
  SamplingParams params;
  params.bad_words = {{7}, {1, 2}, {1, 2, 3}, {4, 4, 4, 5}, {}};
  Sequence slot = state(params, {1}, 1);
  EXPECT_THAT(banned(slot), ElementsAre(2, 7));
  slot.accept(2);
  EXPECT_THAT(banned(slot), ElementsAre(3, 7));
  for (int i = 0; i < 2; ++i) slot.accept(4);
  EXPECT_THAT(banned(slot), ElementsAre(7));
  slot.accept(4);
  EXPECT_THAT(banned(slot), ElementsAre(5, 7));
  for (int i = 0; i < 50; ++i) {
    slot.accept(4);
    EXPECT_THAT(banned(slot), ElementsAre(5, 7)) << i;
  }
  slot.accept(1);
  EXPECT_THAT(banned(slot), ElementsAre(2, 7));
}

// Requests are not trusted to know the size of the vocabulary.
TEST(Rules, TokensOutsideTheVocabularyAreDropped) {
  SamplingParams params;
  params.logit_bias = {{-1, 3.0f}, {kVocab, 3.0f}, {1 << 30, 3.0f}, {kVocab - 1, 3.0f}};
  params.bad_words = {{kVocab}, {-7}};
  params.repetition = 2;
  params.min_tokens = 9;
  const Sequence slot = state(params, {-1, kVocab + 5}, 1, {kVocab});
  EXPECT_THAT(edited(slot, kLogits), ElementsAre(4, -2, 1, -1, 3, 0.5f, -8, 5));
  EXPECT_THAT(biases_of(params, kVocab), ElementsAre(Edit{kVocab - 1, 3.0f}));
  SlotBans bans(slot.slot, kVocab);
  EXPECT_TRUE(bans.list().empty());
}

TEST(Rules, BiasesOfOneTokenAddUp) {
  SamplingParams params;
  params.logit_bias = {{5, 1.0f}, {2, 0.5f}, {5, 2.0f}};
  EXPECT_THAT(biases_of(params, kVocab), ElementsAre(Edit{2, 0.5f}, Edit{5, 3.0f}));
}

// Values at the bounds of what requests may set: no sum of infinities, which would be NaN.
TEST(Rules, ExtremeRepetitionMakesNoNaN) {
  for (const float repetition : {1e-6f, 1e6f}) {
    SamplingParams params;
    params.repetition = repetition;
    params.presence = 2;
    params.bad_words = {{6}};
    std::vector<float> logits = {4, -2, 0, -kInf, 3e30f, -3e30f, 100, 1e-30f};
    for (const float x : edited(state(params, {0, 1, 2, 3, 4, 5, 6, 7}, 0), logits))
      EXPECT_FALSE(std::isnan(x)) << repetition;
  }
  SamplingParams params;
  params.repetition = 1e-6f;
  const std::vector<float> after = edited(state(params, {0, 1}, 1), kLogits);
  EXPECT_EQ(after[0], 4 / 1e-6f);
  EXPECT_EQ(after[1], -2 * 1e-6f);
}

}  // namespace
}  // namespace skiff::sample
