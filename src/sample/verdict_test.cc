#include "sample/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace skiff::sample {
namespace {

// A row whose best tokens have these probabilities.
struct Row {
  std::vector<Token> best;
  std::vector<float> p;
  Token draft = 0, drawn = -1;
};

int kept(const DraftCheck& check, const DraftParams& params, const std::vector<Row>& rows) {
  std::vector<std::vector<float>> logs;
  std::vector<CheckedRow> checked;
  for (const Row& row : rows) {
    std::vector<float>& log = logs.emplace_back();
    for (const float p : row.p) log.push_back(std::log(p));
  }
  for (size_t i = 0; i < rows.size(); ++i)
    checked.push_back({rows[i].drawn, rows[i].draft, rows[i].best, logs[i]});
  return drafts_kept(check, params, checked);
}

TEST(Verdict, DraftsThatWereDrawnAreKept) {
  const Row right{.best = {}, .p = {}, .draft = 5, .drawn = 5};
  const Row wrong{.best = {}, .p = {}, .draft = 8, .drawn = 9};
  for (const DraftRule rule : {DraftRule::kTargetMatch, DraftRule::kTopP, DraftRule::kRelaxed}) {
    EXPECT_EQ(kept({.rule = rule}, {}, {right, right, wrong, right}), 2);
    EXPECT_EQ(kept({.rule = rule}, {}, {}), 0);
  }
}

TEST(Verdict, TopPKeepsWhatMayBeDrawn) {
  const DraftCheck check{.rule = DraftRule::kTopP};
  const auto row = [](Token draft) {
    return Row{.best = {10, 11, 12}, .p = {.5f, .3f, .1f}, .draft = draft};
  };
  const DraftParams params{.top_p = .7f};
  EXPECT_EQ(kept(check, params, {row(12)}), 0);
  EXPECT_EQ(kept(check, params, {row(11)}), 1);
  EXPECT_EQ(kept(check, params, {row(10), row(11), row(12)}), 2);
  EXPECT_EQ(kept(check, {.top_p = 1}, {row(12), row(13)}), 1);
  // A greedy request keeps what it draws.
  EXPECT_EQ(kept(check, {.temperature = 0, .top_p = .7f}, {row(10)}), 0);
}

TEST(Verdict, TheWindowKeepsASecondBest) {
  const DraftCheck check{.rule = DraftRule::kTopP};
  const auto row = [](Token draft) {
    return Row{.best = {1, 2, 3, 4, 5}, .p = {.3f, .25f, .15f, .1f, .05f}, .draft = draft};
  };
  const DraftParams params{.top_p = .99f};
  EXPECT_EQ(kept(check, params, {row(1), row(1), row(1)}), 0);  // five tokens do not reach top_p
  EXPECT_EQ(kept(check, params, {row(2), row(1), row(1)}), 3);
  EXPECT_EQ(kept(check, params, {row(2), row(1), row(1), row(2), row(1)}), 3);
  EXPECT_EQ(kept(check, params, {row(2), row(1), row(2)}), 0);
  EXPECT_EQ(kept(check, params, {row(2), row(1)}), 0);  // the window is not full
  EXPECT_EQ(kept(check, params, {row(3), row(1), row(1)}), 0);
}

TEST(Verdict, RelaxedWhileThinkingOnly) {
  DraftCheck check{.rule = DraftRule::kRelaxed, .best = 2, .think_begin = 100, .think_end = 101};
  const auto row = [](Token draft) {
    return Row{.best = {1, 2, 3}, .p = {.5f, .2f, .05f}, .draft = draft};
  };
  EXPECT_EQ(kept(check, {.thinking = true}, {row(2), row(2)}), 2);
  EXPECT_EQ(kept(check, {.thinking = false}, {row(2)}), 0);
  EXPECT_EQ(kept(check, {.temperature = 0, .thinking = true}, {row(2)}), 1);
  EXPECT_EQ(kept(check, {.thinking = true}, {row(7)}), 0);
  check.delta = .2f;
  EXPECT_EQ(kept(check, {.thinking = true}, {row(1), row(2)}), 1);
  // A thought that ends, or begins, among the drafts.
  check.delta = .6f;
  const Row ends{.best = {}, .p = {}, .draft = 101, .drawn = 101};
  const Row begins{.best = {}, .p = {}, .draft = 100, .drawn = 100};
  EXPECT_EQ(kept(check, {.thinking = true}, {row(2), ends, row(2)}), 2);
  EXPECT_EQ(kept(check, {.thinking = false}, {begins, row(2), row(7)}), 2);
}

TEST(Verdict, ImpossibleTokensAreNotKept) {
  const Row row{.best = {1, 2}, .p = {1, 0}, .draft = 2};
  EXPECT_EQ(kept({.rule = DraftRule::kTopP}, {.top_p = 1}, {row}), 0);
}

}  // namespace
}  // namespace skiff::sample
