// Steps of a drafter are padded to recorded shapes, whatever rows each sequence has.
#include "engine/batch_builder.h"

#include <gmock/gmock.h>

#include "ops/reference/reference_ops.h"

namespace skiff::engine {
namespace {

using testing::ElementsAre;

constexpr int kBlock = 16;

std::vector<int32_t> numbers(const Tensor& t) {
  return {t.as<int32_t>(), t.as<int32_t>() + t.elements()};
}

// Spans with so many rows behind `begin`, each of which samples.
StepPlan plan_of(const std::vector<int>& counts, int begin) {
  StepPlan plan{.page_start = {0}};
  for (const int count : counts) {
    const auto slot = static_cast<int>(plan.spans.size());
    plan.spans.push_back({.seq = static_cast<SeqId>(slot),
                          .slot = slot,
                          .begin = begin,
                          .count = count,
                          .sample = true});
    for (int i = 0; i < count; ++i) plan.tokens.push_back(10 * slot + i);
    plan.pages.push_back(slot);
    plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
  }
  return plan;
}

// The same, with a draft behind each of these rows but the first.
StepPlan checks(const std::vector<int>& counts) {
  StepPlan plan = plan_of(counts, 5);
  for (Span& span : plan.spans) span.draft = span.count - 1;
  return plan;
}

class RaggedSteps : public testing::Test {
 protected:
  std::unique_ptr<Ops> ops_ = make_reference_ops();
  BatchBuilder builder_{{.max_seqs = 4, .max_rows = 12, .max_context = 64, .max_logit_rows = 4},
                        kBlock,
                        {.sizes = {1, 4}, .drafts = 1, .ragged = true},
                        *ops_};
  StepFrame frame_;
};

TEST_F(RaggedSteps, ArePaddedToTheMostRowsOfEachSequence) {
  builder_.build(plan_of({1, 2, 2}, 5), nullptr, frame_);
  EXPECT_EQ(frame_.key, (ReplayKey{.rows = 8, .rows_per_seq = 2, .variant = 1}));
  EXPECT_EQ(frame_.batch.num_seqs, 4);
  EXPECT_EQ(frame_.batch.num_tokens, 8);
  EXPECT_THAT(numbers(frame_.batch.tokens), ElementsAre(0, 10, 11, 20, 21, 0, 0, 0));
  EXPECT_THAT(numbers(frame_.batch.row_start), ElementsAre(0, 1, 3, 5, 5));
  EXPECT_THAT(numbers(frame_.batch.kv_len), ElementsAre(6, 7, 7, 0));
  EXPECT_THAT(numbers(frame_.batch.out_rows), ElementsAre(0, 2, 4, 0));
  EXPECT_EQ(frame_.rows.num_sampled, 3u);
}

TEST_F(RaggedSteps, WithOneRowEachAreShorter) {
  builder_.build(plan_of({1, 1}, 9), nullptr, frame_);
  EXPECT_EQ(frame_.key, (ReplayKey{.rows = 4, .rows_per_seq = 1, .variant = 1}));
  EXPECT_THAT(numbers(frame_.batch.row_start), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(numbers(frame_.batch.out_rows), ElementsAre(0, 1, 0, 0));
}

TEST_F(RaggedSteps, WithMoreRowsThanDraftsAreNotRecorded) {
  builder_.build(plan_of({1, 3}, 0), nullptr, frame_);
  EXPECT_FALSE(frame_.key);
  EXPECT_EQ(frame_.batch.num_tokens, 4);
  EXPECT_THAT(numbers(frame_.batch.out_rows), ElementsAre(0, 3));
}

TEST_F(RaggedSteps, SizesLeaveOutWhatHasTooManyRows) {
  const BatchBuilder narrow({.max_seqs = 4, .max_rows = 7, .max_context = 64, .max_logit_rows = 4},
                            kBlock, {.sizes = {1, 2, 4}, .drafts = 1, .ragged = true}, *ops_);
  EXPECT_THAT(narrow.recorded_sizes(1), ElementsAre(1, 2, 4));
  EXPECT_THAT(narrow.recorded_sizes(2), ElementsAre(1, 2));
}

// A few sequences without a draft do not keep a step from being recorded. Every row has logits.
TEST(Drafts, StepsThatNearlyFillARecordedOneArePaddedToIt) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  BatchBuilder builder({.max_seqs = 4, .max_rows = 12, .max_context = 64, .max_logit_rows = 12},
                       kBlock, {.sizes = {1, 4}, .drafts = 1}, *ops);
  StepFrame frame;
  const auto build = [&](const std::vector<int>& counts) {
    builder.build(checks(counts), nullptr, frame);
    builder.done_with(ops->mark());
  };
  build({2, 1, 2, 2});
  EXPECT_EQ(frame.key, (ReplayKey{.rows = 8, .rows_per_seq = 2}));
  EXPECT_EQ(frame.batch.num_seqs, 4);
  EXPECT_THAT(numbers(frame.batch.row_start), ElementsAre(0, 2, 3, 5, 7));
  EXPECT_THAT(numbers(frame.batch.kv_len), ElementsAre(7, 6, 7, 7));
  EXPECT_THAT(numbers(frame.batch.out_rows), ElementsAre(0, 2, 3, 5, 1, 4, 6, 7));
  build({2, 1, 1, 1});
  EXPECT_FALSE(frame.key) << "three rows of eight would be padding";
  build({2, 2, 1});
  EXPECT_FALSE(frame.key) << "so would they here";
}

// Replicas that share experts replay steps of as many rows each, or none of them does.
TEST(Drafts, InARoundAllHaveRecordedStepsOrNoneHas) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  BatchBuilder builder({.max_seqs = 8, .max_rows = 16, .max_context = 64, .max_logit_rows = 16},
                       kBlock, {.sizes = {1, 4, 8}, .drafts = 1}, *ops);
  StepFrame frame;
  const auto build = [&](const std::vector<int>& mine, const std::vector<int>& other) {
    const StepPlan plan = checks(mine);
    const RoundPart round[] = {part_of(plan), part_of(checks(other))};
    builder.build(plan, nullptr, frame, round);
    builder.done_with(ops->mark());
  };
  const std::optional<ReplayKey> eight(ReplayKey{.rows = 8, .rows_per_seq = 2});
  build({2, 1, 2, 2}, {2, 2, 2});
  EXPECT_EQ(frame.key, eight) << "one sequence has no draft";
  build({2, 2, 2}, {2, 1, 2, 2});
  EXPECT_EQ(frame.key, eight) << "one sequence of the other replica has none";
  build({2, 1, 2, 2}, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(frame.key, eight) << "the other has a row for each";
  build({1, 1, 1, 1, 1, 1}, {2, 1, 2, 2});
  EXPECT_EQ(frame.key, (ReplayKey{.rows = 8, .rows_per_seq = 1}));
  build({}, {2, 1, 2, 2});
  EXPECT_EQ(frame.batch.num_tokens, 8) << "padding for the other";
  EXPECT_EQ(frame.shared_rows->sum, 16);
  for (const std::vector<int>& few : {std::vector{2, 1, 1, 1}, {3, 3, 3, 3}}) {
    build({2, 2, 2, 2}, few);
    EXPECT_FALSE(frame.key) << "the other has no recording for its rows";
    EXPECT_EQ(frame.batch.num_tokens, 8);
    build(few, {2, 2, 2, 2});
    EXPECT_FALSE(frame.key);
  }
}

// Steps whose drafts the host does not see checked. All their arrays lie in the same places.
class ChainedSteps : public testing::Test {
 protected:
  static constexpr int kSlots = 4, kRows = 12;
  void open(const SamplingParams& params = {}) {
    for (int slot = 0; slot < kSlots; ++slot)
      sampler_.open({.slot = slot, .params = params, .history = {1}, .prompt_len = 1});
  }
  StepFrame build(const std::vector<int>& counts, bool behind,
                  const std::vector<RoundPart>& others = {}) {
    StepPlan plan = plan_of(counts, 5);
    plan.chained = true;
    for (Span& span : plan.spans) {
      span.draft = span.count - 1;
      span.after_drafts = behind;
    }
    std::vector<RoundPart> round = others;
    if (!round.empty()) round.push_back(part_of(plan));
    StepFrame frame;
    builder_.build(plan, &sampler_, frame, round);
    builder_.done_with(ops_->mark());
    return frame;
  }
  static std::vector<const void*> places(const StepFrame& frame) {
    std::vector<const void*> out;
    for (const Tensor& t :
         {frame.batch.tokens, frame.batch.positions, frame.batch.row_start, frame.batch.kv_len,
          frame.batch.out_rows, frame.batch.moved_back.slots, frame.slots, frame.verdicts.drafts,
          frame.verdicts.draws, frame.verdicts.kept, frame.columns.sample.temperature,
          frame.columns.sample.draw, frame.columns.behind})
      out.push_back(t.data);
    return out;
  }

  std::unique_ptr<Ops> ops_ = make_reference_ops();
  std::vector<int32_t> refused_ = std::vector<int32_t>(kSlots, 0);
  Tensor table_ = host_tensor(refused_.data(), DType::kI32, {kSlots});
  sample::Sampler sampler_{
      {.vocab = 50, .max_slots = kSlots, .max_rows = kRows}, *ops_, {.refused = table_}};
  BatchBuilder builder_{
      {.max_seqs = kSlots, .max_rows = kRows, .max_context = 64, .max_logit_rows = kRows},
      kBlock,
      {.sizes = {4}, .drafts = 1},
      *ops_,
      {.drafts = 1, .refused = table_}};
};

TEST_F(ChainedSteps, AreWholeAndPaddedToTheRecordedOne) {
  open();
  const StepFrame frame = build({2, 1, 2, 2}, /*behind=*/true);
  EXPECT_TRUE(frame.whole);
  EXPECT_EQ(frame.columns.sample.draw.rows(), 8);
  EXPECT_THAT(numbers(frame.verdicts.drafts), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(numbers(frame.verdicts.draws), ElementsAre(4, 5, 5, 6));
  EXPECT_THAT(numbers(frame.batch.moved_back.slots), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(numbers(frame.batch.out_rows), ElementsAre(0, 2, 3, 5, 1, 4, 6, 7));
  const StepFrame fewer = build({2, 2, 2}, /*behind=*/false);
  EXPECT_TRUE(fewer.whole);
  EXPECT_THAT(numbers(fewer.slots), ElementsAre(0, 1, 2, -1));
  EXPECT_THAT(numbers(fewer.verdicts.drafts), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(numbers(fewer.batch.moved_back.slots), ElementsAre(-1, -1, -1, -1));
}

TEST_F(ChainedSteps, HaveTheirArraysInTheSamePlaces) {
  open();
  std::vector<std::vector<const void*>> all;
  for (const bool behind : {false, true, true, false, false})
    all.push_back(places(build(behind ? std::vector{2, 1, 2, 2} : std::vector{2, 2, 2}, behind)));
  EXPECT_EQ(all[0], all[2]);  // the builder has memory for two steps, used in turns
  EXPECT_EQ(all[0], all[4]);
  EXPECT_EQ(all[1], all[3]);
}

// Beside other replicas, too, whose steps are padded to as many rows.
TEST_F(ChainedSteps, AreWholeInARoundOfRecordedSteps) {
  open();
  const StepFrame alone = build({2, 2, 2}, /*behind=*/true);
  build({2, 2, 2}, /*behind=*/true);
  const StepFrame beside = build({2, 2, 2}, /*behind=*/true, {{.seqs = 1, .rows = 1}, {}});
  EXPECT_FALSE(beside.whole) << "one replica has a prompt";
  EXPECT_EQ(beside.shared_rows->sum, 6 + 1 + 1);
  const StepFrame padded = build({2, 2, 2}, /*behind=*/true,
                                 {{.seqs = 3, .rows = 6, .rows_per_seq = 2, .most_per_seq = 2}});
  EXPECT_TRUE(padded.whole);
  EXPECT_EQ(padded.shared_rows->sum, 16);
  EXPECT_EQ(padded.key, alone.key);
  build({2, 2, 2}, /*behind=*/true);
  EXPECT_EQ(places(build({2, 2, 2}, /*behind=*/true, {RoundPart{}})), places(padded));
}

TEST_F(ChainedSteps, AreNotWholeWhereADrawNeedsMore) {
  open({.logit_bias = {{3, 1.0f}}});
  const StepFrame frame = build({2, 2, 2}, /*behind=*/false);
  EXPECT_FALSE(frame.whole);
  EXPECT_EQ(frame.columns.sample.draw.rows(), 6) << "rows that are drawn, and no padding";
  EXPECT_THAT(numbers(frame.slots), ElementsAre(0, 1, 2, -1)) << "the drafter is recorded alone";
}

}  // namespace
}  // namespace skiff::engine
