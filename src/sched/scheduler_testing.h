// sched/scheduler_testing.h -- a scheduler whose steps a test runs by hand, one or several in
// flight.
#pragma once
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "kv/cache_index.h"
#include "sched/scheduler.h"

namespace skiff::sched {
constexpr int kBlock = 4;

inline NewSequence request(SeqId id, int prompt, int max_tokens = 8, int priority = 0) {
  NewSequence s;
  s.id = id;
  for (int i = 0; i < prompt; ++i) s.prompt.push_back(static_cast<Token>(id * 1000) + i);
  s.stop.max_tokens = max_tokens;
  s.priority = priority;
  return s;
}

class Schedule : public testing::Test {
 protected:
  void start(const Limits& limits, int blocks = 100, bool share = true) {
    cache_ = std::make_unique<kv::CacheIndex>(blocks, kBlock, share);
    scheduler_ = std::make_unique<Scheduler>(limits, *cache_);
  }
  void add(NewSequence s) { ASSERT_TRUE(scheduler_->add(std::move(s))); }
  const StepPlan& plan() {
    flying_.push_back(scheduler_->plan());
    return flying_.back();
  }
  // Every span that samples gets `token` as its result.
  std::vector<Event> commit(Token token = 7) {
    const StepPlan plan = std::move(flying_.front());
    flying_.pop_front();
    StepResult result;
    result.step = plan.step;
    for (const Span& s : plan.spans) {
      result.tokens.push_back(s.sample ? std::vector<Token>{token} : std::vector<Token>{});
      result.logprobs.emplace_back(result.tokens.back().size());
      const size_t rows = static_cast<size_t>(s.count - s.sample);
      result.prompt_logprobs.emplace_back(s.prompt_logprobs == kNoLogprobs ? 0 : rows);
      result.pooled.push_back(s.pool ? std::vector<float>{1, 2} : std::vector<float>{});
    }
    if (!plan.empty()) scheduler_->commit(plan, result);
    return scheduler_->take_events();
  }
  // (sequence, begin, count) of each span.
  using Rows = std::tuple<SeqId, int, int>;
  static std::vector<Rows> rows(const StepPlan& plan) {
    std::vector<Rows> out;
    out.reserve(plan.spans.size());
    for (const Span& s : plan.spans) out.emplace_back(s.seq, s.begin, s.count);
    return out;
  }
  std::vector<Rows> step(Token token = 7) {
    auto out = rows(plan());
    events_ = commit(token);
    return out;
  }

  std::unique_ptr<kv::CacheIndex> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<StepPlan> flying_;
  std::vector<Event> events_;
};

inline Limits limits(int seqs, int rows, int context = 200) {
  return {.max_seqs = seqs, .max_rows = rows, .max_context = context, .max_logit_rows = seqs + 4};
}

inline std::vector<Finish> endings(const std::vector<Event>& events) {
  std::vector<Finish> out;
  for (const Event& e : events)
    if (e.finish != Finish::kNone) out.push_back(e.finish);
  return out;
}

}  // namespace skiff::sched
