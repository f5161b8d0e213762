#include "sample/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "ops/ops.h"

namespace skiff {
namespace {

using testing::ElementsAre;

constexpr int kVocab = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

// All rules on one row of logits.
std::vector<float> edited(const SlotState& slot, std::vector<float> logits) {
  EditList edits(kVocab);
  for (const Rule& rule : rules()) rule.apply(slot, edits);
  edits.end_row();
  make_reference_ops()->edit_logits(host_tensor(logits.data(), DType::kF32, {1, kVocab}),
                                    edits.view());
  return logits;
}

const std::vector<float> kLogits = {4, -2, 1, -1, 3, 0.5f, -8, 2};

SlotState state(const SamplingParams& params, std::vector<Token> history, int prompt_len,
                std::vector<Token> stop = {}) {
  return SlotState({.slot = 0,
                    .params = params,
                    .history = std::move(history),
                    .prompt_len = prompt_len,
                    .stop_tokens = std::move(stop)});
}

std::vector<Token> banned(const SlotState& slot) {
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
  SlotState slot = state(params, {0, 0, 0, 4}, 3);
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
  SlotState slot = state(params, {1, 1, 1}, 3, {5, 6});
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
  SlotState slot = state(params, {1}, 1);
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
  const SlotState slot = state(params, {-1, kVocab + 5}, 1, {kVocab});
  EXPECT_THAT(edited(slot, kLogits), ElementsAre(4, -2, 1, -1, 3, 0.5f, -8, 5));
  EditList edits(kVocab);
  for (const Rule& rule : rules()) rule.apply(slot, edits);
  EXPECT_EQ(edits.view().token.elements(), 1);
}

TEST(Rules, RowsAreKeptApart) {
  SamplingParams params;
  params.bad_words = {{1}};
  EditList edits(kVocab);
  const SlotState with = state(params, {}, 0), without = state({}, {}, 0);
  for (const SlotState* slot : {&without, &with, &without, &with}) {
    for (const Rule& rule : rules()) rule.apply(*slot, edits);
    edits.end_row();
  }
  const LogitEdits view = edits.view();
  EXPECT_THAT(std::vector<int32_t>(view.row_start.as<int32_t>(), view.row_start.as<int32_t>() + 5),
              ElementsAre(0, 0, 1, 1, 2));
}

}  // namespace
}  // namespace skiff
