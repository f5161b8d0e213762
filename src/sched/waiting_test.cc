// Counts how often a sequence is overtaken by later ones, under a load that never ends: a full
// server that admits the next sequence as soon as one has ended, with priorities, long prompts, too
// little memory and cancellations. The bounds of policy.h are checked for each sequence when it
// starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "sched/scheduler.h"

namespace skiff::sched {
namespace {

constexpr int kLoad = 16;  // sequences that run or wait, always

Limits tight() {
  return {.max_seqs = 6,
          .max_rows = 96,
          .max_context = 512,
          .max_logit_rows = 10,
          .policy = {.ageing = 20,
                     .long_yields = 10,
                     .yield_tokens = 30,
                     .long_prompt = 200,
                     .max_overtakes = 8}};
}

class FullServer {
 public:
  explicit FullServer(uint64_t seed) : rng_(seed) {}

  // Runs a step: some sequences arrive, some are cancelled, and one plan is carried out.
  void step() {
    while (static_cast<int>(present_.size()) < kLoad) arrive();
    if (rng_() % 8 == 0)
      leave(std::next(present_.begin(), static_cast<long>(rng_() % present_.size()))->first);
    const StepPlan plan = scheduler_.plan();
    ASSERT_FALSE(plan.empty()) << "with " << present_.size() << " sequences there is work";
    StepResult result{.step = plan.step};
    for (const Span& s : plan.spans) {
      result.tokens.push_back(s.sample ? std::vector<Token>{7} : std::vector<Token>{});
      result.logprobs.emplace_back(result.tokens.back().size());
      result.prompt_logprobs.emplace_back();
    }
    scheduler_.commit(plan, result);
    hear();
  }

  const Limits limits = tight();
  std::map<int, int> most;  // later arrivals that started before one, by its priority
  int most_for_memory = 0;  // the same, but only those that ranked behind it
  SchedulerStats stats() const { return scheduler_.stats(); }

 private:
  struct Waiting {
    int priority = 0;
    std::pair<int64_t, int64_t> place;
    int overtaken = 0, for_memory = 0;
    bool started = false;
  };

  void arrive() {
    const SeqId id = ++arrivals_;
    NewSequence s;
    s.id = id;
    const size_t length = rng_() % 10 == 0 ? 201 + rng_() % 200 : 1 + rng_() % 120;
    for (size_t i = 0; i < length; ++i) s.prompt.push_back(static_cast<Token>(rng_() % 5000));
    s.stop.max_tokens = 1 + static_cast<int>(rng_() % 90);
    s.priority = rng_() % 4 ? 0 : static_cast<int>(rng_() % 5) - 2;
    const auto arrival = static_cast<int64_t>(id);
    const Policy& policy = limits.policy;
    int64_t yields = length > 200 ? policy.long_yields : 0;
    const double doublings = std::log2(static_cast<double>(length) / policy.yield_tokens);
    if (length <= 200) yields = std::max(0, static_cast<int>(std::floor(2 * doublings + 1e-9)));
    present_[id] = {.priority = s.priority,
                    .place = {arrival + int64_t{policy.ageing} * s.priority + yields, -arrival}};
    ASSERT_TRUE(scheduler_.add(std::move(s)));
  }

  void leave(SeqId id) {
    scheduler_.cancel(id);
    hear();
  }

  void hear() {
    for (const Event& e : scheduler_.take_events()) {
      if (e.admitted) start(e.seq);
      if (e.finish != Finish::kNone) present_.erase(e.seq);
    }
  }

  void start(SeqId id) {
    Waiting& self = present_.at(id);
    self.started = true;
    for (auto& [other, waits] : present_) {
      if (other >= id || waits.started) continue;
      ++waits.overtaken;
      waits.for_memory += self.place > waits.place;
    }
    most[self.priority] = std::max(most[self.priority], self.overtaken);
    most_for_memory = std::max(most_for_memory, self.for_memory);
  }

  std::mt19937_64 rng_;
  kv::CacheIndex cache_{44, 16, true};
  Scheduler scheduler_{limits, cache_};
  std::map<SeqId, Waiting> present_;
  SeqId arrivals_ = 0;
};

TEST(Waiting, IsBoundedByThePolicyUnderAnEndlessLoad) {
  FullServer server(1);
  for (int i = 0; i < 200'000; ++i) ASSERT_NO_FATAL_FAILURE(server.step());
  const Policy& policy = server.limits.policy;
  const int sure = policy.long_yields + policy.max_overtakes;
  for (const auto& [priority, overtaken] : server.most) {
    std::printf("priority %d: overtaken by %d later ones at most\n", priority, overtaken);
    EXPECT_LE(overtaken, policy.ageing * (priority + 2) + sure) << "priority " << priority;
  }
  EXPECT_LE(server.most_for_memory, policy.max_overtakes);
  // Without preemptions the case would test nothing.
  EXPECT_GT(server.stats().preemptions, 100u);
  EXPECT_EQ(server.most.size(), 5u);
  EXPECT_GT(server.most[2], policy.ageing);
  EXPECT_GT(server.most_for_memory, 0);
}

}  // namespace
}  // namespace skiff::sched
