#include "engine/plan_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace skiff::engine {
namespace {

using testing::HasSubstr;

const PlanBounds kBounds{
    .limits = {.max_seqs = 4, .max_rows = 8, .max_context = 30, .max_logit_rows = 4, .vocab = 97},
    .block_size = 8,
    .blocks = 10,
    .host_blocks = 3};

// A prompt of five tokens that ends, and a decode in its fourth block.
StepPlan good() {
  return {.step = 1,
          .saves = {{.block = 9, .host = 2}},
          .loads = {{.block = 0, .host = 0}},
          .spans = {{.seq = 1, .slot = 0, .begin = 0, .count = 5, .sample = true},
                    {.seq = 2, .slot = 3, .begin = 29, .count = 1, .sample = true}},
          .tokens = {1, 2, 3, 4, 96, kOnDevice},
          .pages = {9, 1, 2, 3, 4},
          .page_start = {0, 1, 5},
          .opened = {{.slot = 0, .params = {}, .history = {1, 2, 3, 4, 96}, .prompt_len = 5}}};
}

std::string refusal(const std::function<void(StepPlan&)>& change) {
  StepPlan plan = good();
  change(plan);
  const Status status = check_plan(plan, kBounds);
  return status ? "" : status.error().what;
}

TEST(PlanBounds, WhatFitsIsLetThrough) {
  EXPECT_EQ(refusal([](StepPlan&) {}), "");
  EXPECT_EQ(refusal([](StepPlan& p) { p = {.page_start = {0}}; }), "");
}

TEST(PlanBounds, EachNumberHasItsRange) {
  EXPECT_EQ(refusal([](StepPlan& p) { p.spans[1].slot = 4; }),
            "a plan that cannot be carried out: the slot of a span is 4; it must be from 0 to 3");
  EXPECT_THAT(refusal([](StepPlan& p) { p.spans[1].slot = 0; }), HasSubstr("spans of a slot is 2"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.spans[1].begin = 32; }), HasSubstr("the end of a span"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.spans[1].next = 97; }), HasSubstr("the next token"));
  EXPECT_THAT(refusal([](StepPlan& p) {
                p.page_start = {0, 2, 5};
              }),
              HasSubstr("the number of pages of a span is 3"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.pages[2] = 10; }), HasSubstr("a block is 10"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.pages[2] = -1; }), HasSubstr("a block is -1"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.tokens[0] = 97; }), HasSubstr("a token is 97"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.tokens[0] = -2; }), HasSubstr("a token is -2"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.saves[0].block = 10; }), HasSubstr("a block is 10"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.loads[0].host = 3; }), HasSubstr("host memory is 3"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.opened[0].slot = 4; }), HasSubstr("an opened slot is 4"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.opened[0].history[1] = kOnDevice; }),
              HasSubstr("a token of a history is -1"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.opened[0].history.resize(31); }),
              HasSubstr("the length of a history is 31"));
}

// Behind a chained step tokens are drafted at further positions, and drafts of the next one are
// looked up among those.
TEST(PlanBounds, ChainedStepsNeedPagesAndADrafter) {
  const auto refusal = [](int drafts, const std::function<void(StepPlan&)>& change) {
    PlanBounds bounds = kBounds;
    bounds.limits.chained_drafts = drafts;
    bounds.limits.chained_reach = drafts - 1;
    StepPlan plan{.spans = {{.slot = 3, .begin = 5, .count = 3, .draft = 2, .sample = true}},
                  .tokens = {kOnDevice, kOnDevice, kOnDevice},
                  .pages = {4},
                  .page_start = {0, 1},
                  .chained = true};
    change(plan);
    const Status status = check_plan(plan, bounds);
    return status ? "" : status.error().what;
  };
  const auto as_it_is = [](StepPlan&) {};
  EXPECT_THAT(refusal(0, as_it_is), HasSubstr("drafts behind a chained step is 0"));
  EXPECT_THAT(refusal(1, as_it_is), HasSubstr("the host does not know is 1"));
  EXPECT_THAT(refusal(2, as_it_is), HasSubstr("the number of pages of a span is 1"));
  EXPECT_EQ(refusal(2, [](StepPlan& p) { p.pages.push_back(1), p.page_start[1] = 2; }), "");
  EXPECT_EQ(refusal(2, [](StepPlan& p) { p.chained = false; }), "");
  EXPECT_THAT(refusal(2, [](StepPlan& p) { p.spans[0].begin = 1, p.spans[0].after_drafts = true; }),
              HasSubstr("the beginning of rows behind drafts is 1"));
}

TEST(PlanBounds, RowsAreBounded) {
  EXPECT_THAT(refusal([](StepPlan& p) {
                p.spans[0].count = 8;
                p.tokens.insert(p.tokens.end(), 3, 1);
              }),
              HasSubstr("the number of rows is 9"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.spans[0].draft = 3; }),
              HasSubstr("the number of rows of logits is 5"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.spans[0].prompt_logprobs = 1; }),
              HasSubstr("the number of rows of logits is 6"));
}

}  // namespace
}  // namespace skiff::engine
