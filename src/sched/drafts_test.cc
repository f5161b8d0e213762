// Tests which drafts are checked, and when a step waits for them. That they never change a
// sequence's text is tested with random schedules in engine/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>
#include <optional>

#include "sched/scheduler.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// (sequence, rows, drafts) of each span.
using Rows = std::tuple<SeqId, int, int>;

class Drafts : public testing::Test {
 protected:
  // The text of every sequence: token i is i.
  void start(StepCost cost = {}, int max_logit_rows = 64, int max_seqs = 32) {
    cache_ = std::make_unique<kv::CacheIndex>(1000, 16, /*share_prefixes=*/false);
    scheduler_ = std::make_unique<Scheduler>(
        Limits{.max_seqs = max_seqs,
               .max_rows = 200,
               .max_context = 400,
               .max_logit_rows = max_logit_rows,
               .policy = {.cost = std::move(cost),
                          .step_seconds = std::numeric_limits<double>::infinity(),
                          .forced_rate = forced_rate_}},
        *cache_);
  }
  ~Drafts() override {
    if (!scheduler_) return;
    scheduler_->cancel_all();
    for (guess_ = {}; !scheduler_->idle();) {
      plan();
      while (!flying_.empty()) commit();
    }
  }
  void add(SeqId id, int max_tokens = 200, bool reports = false) {
    NewSequence s{.id = id, .prompt = {0, 1, 2}};
    if (reports) s.params.logprobs = 2, s.params.draft_logprobs = true;
    s.stop.max_tokens = max_tokens;
    ASSERT_TRUE(scheduler_->add(std::move(s)));
  }
  std::vector<Rows> plan() {
    const StepPlan plan = scheduler_->plan();
    std::vector<Rows> rows;
    rows.reserve(plan.spans.size());
    for (const Span& s : plan.spans) rows.emplace_back(s.seq, s.count, s.draft);
    if (!plan.empty()) flying_.push_back(plan);
    return rows;
  }
  void commit() {
    const StepPlan plan = std::move(flying_.front());
    flying_.pop_front();
    StepResult result{.step = plan.step};
    result.drafts.resize(plan.spans.size());
    result.logprobs.resize(plan.spans.size());
    result.prompt_logprobs.resize(plan.spans.size());
    size_t row = 0;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& s = plan.spans[i];
      row += static_cast<size_t>(s.count);
      result.tokens.push_back(answer(s, std::span(plan.tokens).first(row).last(size_t(s.draft))));
      const int known = s.begin + s.count - s.draft + static_cast<int>(result.tokens[i].size());
      if (guess_) result.drafts[i] = guess_(s.seq, known);
      result.logprobs[i].resize(result.tokens[i].size());
      if (s.draft_logprobs == kNoLogprobs) continue;
      result.draft_logprobs.resize(plan.spans.size());
      for (const Token draft :
           std::span(result.drafts[i]).first(std::min(2ul, result.drafts[i].size())))
        result.draft_logprobs[i].push_back({.chosen = {draft, -1.f}});
    }
    scheduler_->commit(plan, result);
    for (const Event& event : scheduler_->take_events()) events_.push_back(event);
  }
  static std::vector<Token> answer(const Span& s, std::span<const Token> drafts) {
    Token next = s.begin + s.count - s.draft;
    std::vector<Token> out{next};
    for (const Token draft : drafts) {
      if (draft != next) break;
      out.push_back(++next);
    }
    return out;
  }
  std::vector<Rows> step() {
    auto rows = plan();
    if (!flying_.empty()) commit();
    return rows;
  }
  static std::vector<Token> right(int begin, int count) {
    std::vector<Token> out(static_cast<size_t>(count));
    std::iota(out.begin(), out.end(), begin);
    return out;
  }

  std::optional<double> forced_rate_;
  std::unique_ptr<kv::CacheIndex> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<StepPlan> flying_;
  std::vector<Event> events_;
  std::function<std::vector<Token>(SeqId, int known)> guess_;
};

// A row costs nothing, or as much as a step of one.
StepCost free_rows() { return StepCost({{1, 1e-3}, {200, 1.001e-3}}, {}); }
StepCost dear_rows() { return StepCost({{1, 1e-3}, {200, 200e-3}}, {}); }

TEST_F(Drafts, AreCheckedWhereRowsAreCheap) {
  start(free_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  add(1);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 3, 0}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 6, 5}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 6, 5}));
  const DraftStats& stats = scheduler_->stats().drafts;
  EXPECT_EQ(stats.checks, 2u);
  EXPECT_EQ(stats.drafted, 10u);
  EXPECT_EQ(stats.kept, 10u);
  EXPECT_EQ(stats.kept_at[4], 2u);
  EXPECT_EQ(stats.kept_at[5], 0u);
}

// The drafts that stood in the place of tokens are reported with these, whether they were checked
// or not; of the five, a model made two.
TEST_F(Drafts, AreReportedBesideTheTokensInWhosePlaceTheyStood) {
  for (const bool checked : {true, false}) {
    start(checked ? free_rows() : dear_rows());
    events_.clear();
    int wrong = 100;  // the place of a wrong draft
    guess_ = [&](SeqId, int known) {
      std::vector<Token> out = right(known, 5);
      if (wrong < 5) out[static_cast<size_t>(wrong)] = -9;
      return out;
    };
    add(1, 200, /*reports=*/true);
    add(2, 200);
    EXPECT_TRUE(plan().size() == 2 && flying_.back().reports_drafts());
    commit();
    // `stood`: the place of the wrong one of those that the step before gave.
    const auto reported = [&](int stood) {
      step();
      std::vector<std::pair<int, Token>> out;
      for (const Event& event : std::exchange(events_, {})) {
        EXPECT_TRUE(event.seq == 1 || event.draft_logprobs.empty());
        for (const DraftLogprobs& one : event.draft_logprobs) {
          out.emplace_back(one.at, one.logprobs.chosen.token);
          const Token token = event.tokens.at(static_cast<size_t>(one.at));
          EXPECT_EQ(one.logprobs.chosen.token == token, stood != one.at);
        }
      }
      return out;
    };
    EXPECT_TRUE(events_.at(0).draft_logprobs.empty()) << "nothing was drafted before";
    events_.clear();
    EXPECT_EQ(reported(100).size(), checked ? 2u : 1u) << "these were right";
    wrong = 0;
    EXPECT_EQ(reported(100).size(), checked ? 2u : 1u) << "these, too";
    EXPECT_EQ(reported(0).size(), 1u) << "the first was wrong";
    wrong = 1;
    EXPECT_EQ(reported(0).size(), 1u) << "the first was wrong";
    EXPECT_EQ(reported(1).size(), checked ? 2u : 1u) << "the second was wrong";
    scheduler_->cancel_all();
    while (!scheduler_->idle()) step();
  }
}

TEST_F(Drafts, AreNotCheckedWhereARowCostsAsMuchAsAStep) {
  start(dear_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  add(1);
  step();
  for (int i = 0; i < 20; ++i) EXPECT_THAT(step(), ElementsAre(Rows{1, 1, 0}));
}

TEST_F(Drafts, AreFewerTheLessTheyAreKept) {
  start(StepCost({{1, 1e-3}, {16, 2.5e-3}, {200, 20e-3}}, {}));
  bool good = true;
  guess_ = [&](SeqId, int known) {
    return good ? right(known, 5) : std::vector<Token>{-9, -9, -9, -9, -9};
  };
  const auto drafts_of = [&] { return std::get<2>(step().at(0)); };
  add(1);
  step();
  drafts_of();
  for (int i = 0; i < 4; ++i) drafts_of();
  EXPECT_EQ(drafts_of(), 5) << "all were right";
  good = false;
  step();  // the last good ones
  std::vector<int> lengths;
  lengths.reserve(20);
  for (int i = 0; i < 20; ++i) lengths.push_back(drafts_of());
  EXPECT_TRUE(std::ranges::is_sorted(lengths, std::greater()));
  EXPECT_EQ(lengths.back(), 0) << "off";
  good = true;
  for (int i = 0; i < 20; ++i) drafts_of();
  EXPECT_EQ(drafts_of(), 5) << "the text has confirmed drafts that were not checked";
}

TEST_F(Drafts, AreWorthWhatIsForcedWhateverTheTextSays) {
  for (const double rate : {0.8, 0.4}) {
    forced_rate_ = rate;
    start(StepCost({{1, 1e-3}, {2, 1.5e-3}, {200, 100e-3}}, {}));
    guess_ = [](SeqId, int) { return std::vector<Token>{-9}; };  // never what the text says
    add(1);
    step();
    for (int i = 0; i < 20; ++i)
      EXPECT_THAT(step(), ElementsAre(rate > 0.5 ? Rows{1, 2, 1} : Rows{1, 1, 0}));
    scheduler_->cancel_all();
    while (!scheduler_->idle()) step();
  }
}

TEST_F(Drafts, OfABatchThatFillsTheDeviceAreNotChecked) {
  // Ten rows are as quick as one; from there on each costs as much as a sequence brings.
  start(StepCost({{1, 1e-3}, {10, 1e-3}, {200, 20e-3}}, {}));
  guess_ = [](SeqId, int known) { return right(known, 4); };
  for (SeqId id = 1; id <= 2; ++id) add(id);
  step();
  EXPECT_THAT(step(), ElementsAre(Rows{1, 5, 4}, Rows{2, 5, 4}));
  for (SeqId id = 3; id <= 20; ++id) add(id);
  step();
  for (const auto& [seq, rows, drafts] : step()) EXPECT_EQ(drafts, 0) << seq;
}

TEST_F(Drafts, EndWhereTheSequenceMust) {
  start(free_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  add(1, 4);
  step();  // one token
  EXPECT_THAT(step(), ElementsAre(Rows{1, 3, 2})) << "two drafts and one more are the last three";
  EXPECT_EQ(events_.back().finish, Finish::kLength);
  EXPECT_EQ(events_.back().drafted, 2);
  EXPECT_EQ(events_.back().kept, 2);
}

TEST_F(Drafts, OfWhichAStopTokenIsOneAreCutThere) {
  start(free_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  NewSequence s{.id = 1, .prompt = {0, 1, 2}};
  s.stop = {.max_tokens = 100, .tokens = {5}};
  ASSERT_TRUE(scheduler_->add(std::move(s)));
  step();  // token 3
  step();
  EXPECT_THAT(events_.back().tokens, ElementsAre(4, 5));
  EXPECT_EQ(events_.back().finish, Finish::kStop);
  EXPECT_EQ(events_.back().kept, 2);
  EXPECT_EQ(scheduler_->stats().drafts.kept, 2u) << "those that are in the text";
}

// Two steps in flight.
TEST_F(Drafts, AreWaitedFor) {
  start(free_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  add(1);
  plan();
  EXPECT_THAT(plan(), ElementsAre(Rows{1, 1, 0})) << "there are no drafts yet";
  commit();
  EXPECT_THAT(plan(), IsEmpty()) << "drafts follow a token that is not known";
  commit();
  EXPECT_THAT(plan(), ElementsAre(Rows{1, 6, 5}));
  EXPECT_THAT(plan(), IsEmpty());
  commit();
  EXPECT_THAT(plan(), ElementsAre(Rows{1, 6, 5}));
}

TEST_F(Drafts, AreNotWaitedForWithoutAny) {
  start(free_rows());
  add(1);
  plan();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(plan(), ElementsAre(Rows{1, 1, 0}));
    commit();
  }
}

TEST_F(Drafts, AreNotWaitedForWhereTheyAreNotWorthChecking) {
  start(dear_rows());
  guess_ = [](SeqId, int known) { return right(known, 5); };
  add(1);
  plan();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(plan(), ElementsAre(Rows{1, 1, 0}));
    commit();
  }
}

// One of many that decode without drafts sits out every other step, and gains by it.
TEST_F(Drafts, OfOneAmongManyAreWaitedForByThatOneAlone) {
  start(free_rows(), 96, 64);
  guess_ = [](SeqId seq, int known) { return seq == 7 ? right(known, 5) : std::vector<Token>{}; };
  for (SeqId id = 1; id <= 64; ++id) add(id);
  const auto rows_of = [](const std::vector<Rows>& step) {
    for (const auto& [seq, rows, drafts] : step)
      if (seq == 7) return rows;
    return 0;
  };
  plan();
  std::vector<int> sevens;
  for (int i = 0; i < 60; ++i) {
    const auto rows = plan();
    EXPECT_GE(rows.size(), 63u);
    sevens.push_back(rows_of(rows));
    commit();
  }
  EXPECT_THAT(std::vector(sevens.end() - 4, sevens.end()),
              testing::AnyOf(ElementsAre(6, 0, 6, 0), ElementsAre(0, 6, 0, 6)));
}

}  // namespace
}  // namespace skiff::sched
