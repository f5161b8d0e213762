// What patterns of layers' names may cost, each and together.
#include "model/name_pattern.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/load_error.h"

namespace skiff::model {
namespace {

using testing::HasSubstr;

constexpr char kWhere[] = "config.json: quantization_config: ignore";

std::string module_name(int i) {
  return fmt::format("model.language_model.layers.{}.mlp.experts.{}.down_proj", i % 61, i);
}

// Returns how many modules a pattern is matched with before the budget is spent, and what is said
// then; `most` and nothing if it is not.
std::pair<int, std::string> matched(const NamePattern& pattern, MatchBudget& budget, int most) {
  for (int i = 0; i < most; ++i) try {
      pattern.matches(module_name(i), budget);
    } catch (const LoadError& e) {
      return {i, e.what()};
    }
  return {most, ""};
}

// No match is free, however cheap: a configuration may hold very many patterns, and a model very
// many modules.
TEST(NamePattern, EveryMatchIsChargedWhateverItsKind) {
  for (const auto& [kind, text] : {std::pair(PatternKind::kName, "lm_head"),
                                   {PatternKind::kSubstring, "gate"},
                                   {PatternKind::kComponents, "mlp.gate"},
                                   {PatternKind::kWildcard, "*.gate"},
                                   {PatternKind::kRegex, "lm_head"},
                                   {PatternKind::kAll, ""}}) {
    const NamePattern pattern(kind, text, kWhere);
    MatchBudget budget{.steps = 1000};
    const auto [count, said] = matched(pattern, budget, 2000);
    EXPECT_LE(count, 1000) << text;
    EXPECT_GE(count, 10) << text;
    EXPECT_THAT(said, HasSubstr(std::string(kWhere) + ": its patterns take too long together"));
  }
}

TEST(NamePattern, OneBudgetIsForAllPatterns) {
  MatchBudget budget{.steps = 100'000};
  int count = 0;
  std::string said;
  for (int i = 0; i < 1000 && said.empty(); ++i) {
    const NamePattern pattern(PatternKind::kRegex, fmt::format(".*layers\\.{}\\..*", i), kWhere);
    const auto [more, what] = matched(pattern, budget, 10);
    count += more;
    said = what;
  }
  EXPECT_LT(count, 2000);
  EXPECT_THAT(said, HasSubstr("write simpler ones or fewer"));
}

// Longer patterns and those that go back are charged for it.
TEST(NamePattern, WhatTakesLongerCostsMore) {
  const auto cost = [](PatternKind kind, const std::string& text) {
    MatchBudget budget;
    const int64_t before = budget.steps;
    NamePattern(kind, text, kWhere).matches(module_name(0), budget);
    return before - budget.steps;
  };
  EXPECT_GE(cost(PatternKind::kWildcard, std::string(60'000, '*') + "#"), 60'000);
  EXPECT_GE(cost(PatternKind::kRegex, ".*.*(?:#|%)"), 1000);
  EXPECT_LE(cost(PatternKind::kRegex, "model\\.layers\\.3\\..*"), 100);
  EXPECT_LE(cost(PatternKind::kRegex, ".*layers\\.17\\..*\\.self_attn.*"), 300);
  EXPECT_LE(cost(PatternKind::kName, "model.layers.3"), 1);
}

// A mixture with 46,000 modules, each of which is named, or three hundred regular expressions.
TEST(NamePattern, TheBudgetIsEnoughForLargeModels) {
  constexpr int64_t kModules = 46'000, kExpressions = 300;
  const auto cost = [](PatternKind kind, const std::string& text) {
    MatchBudget budget;
    const int64_t before = budget.steps;
    for (int i = 0; i < 100; ++i) NamePattern(kind, text, kWhere).matches(module_name(i), budget);
    return (before - budget.steps) / 100;
  };
  EXPECT_LT(cost(PatternKind::kName, module_name(1)) * kModules * kModules, MatchBudget().steps);
  EXPECT_LT(cost(PatternKind::kRegex, ".*\\.17\\..*\\.self_attn.*") * kModules * kExpressions,
            MatchBudget().steps);
}

}  // namespace
}  // namespace skiff::model
