// engine/engine.h -- the step loop on one thread: commands come in, steps go out to the runner and
// return, and events go out.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "base/seconds.h"
#include "engine/draft_pace.h"
#include "engine/errands.h"
#include "engine/runner.h"
#include "engine/step_pacer.h"
#include "engine/step_tally.h"
#include "engine/tier_io.h"
#include "sched/scheduler.h"

namespace skiff::engine {

class Engine {
 public:
  // Called on the engine's thread twice per step with the events since the last call, often none.
  using Outbox = std::function<void(std::vector<Event>)>;

  // With depth 1 each step is waited for; with depth 2 a step is planned while the one before it
  // computes, at the time that `pacer` names. `pace` says behind which steps tokens are drafted; if
  // it weighs that, each of these steps is waited for unless it is chained, and the others are as
  // `depth` says. Behind
  // those of sequences that request log-probabilities of drafts tokens are always drafted.
  // All must outlive the engine. `sources` has one entry for each BlockSource of the scheduler's
  // cache, in the same order; they answer through the inbox.
  Engine(sched::Scheduler& scheduler, Runner& runner, Queue<Command>& inbox, Outbox outbox,
         size_t depth, std::vector<TierIo*> sources = {}, StepPacer pacer = StepPacer(),
         DraftPace pace = DraftPace());

  // Runs one iteration: takes the commands that have come, and those that come before the step in
  // flight is nearly done, plans and launches a step, and commits the oldest step in flight if
  // `depth` steps are in flight or nothing else can be done. Blocks while there is no work at all
  // and the inbox is open, or while awaits() is true.
  void step() {
    if (!flying_.empty()) gather();
    const bool rested = idle();
    for (Command& command : awaits() ? inbox_.drain_some() : inbox_.drain(/*wait=*/idle()))
      take(command);
    const auto begin = Clock::now();
    if (rested) ended_ = begin;
    StepPlan plan = scheduler_.plan();
    plan.drafts = pace_.drafts(plan) || plan.reports_drafts();
    plan.chained = plan.drafts && depth_ > 1 && scheduler_.chain(plan);
    const bool ran = !plan.empty();
    stalled_ = !ran && flying_.empty() && !scheduler_.idle();
    SKIFF_CHECK(!stalled_ || scheduler_.tiers().awaits_answer(), "the scheduler is stuck");
    if (ran) launch(std::move(plan), begin);
    report();
    bool waits = !ran && !flying_.empty();
    for (; waits || (!flying_.empty() && flying_.size() >= depth()); waits = false) {
      commit();
      report();
    }
    if (errands_.any() && idle() && scheduler_.tiers().at_rest()) errands_.carry_out();
  }

  // Calls step() until the inbox is closed and all work is done. Once `abort` is true (and the
  // inbox closed, or a command sent, to wake the engine), all sequences are cancelled instead.
  void run(const std::atomic<bool>& abort);

  // Work of other threads, done between steps. Whoever adds some sends a command, too.
  Errands& errands() { return errands_; }
  // From now on sequences are refused for this reason; none: they are taken. For the engine's
  // thread.
  void refuse(std::string why) { refusal_ = std::move(why); }

  bool idle() const { return scheduler_.idle() && flying_.empty(); }
  // Returns whether nothing can be done until a lower tier of the cache answers (or another command
  // comes).
  bool awaits() const { return stalled_; }
  uint64_t steps() const { return steps_; }  // number of committed steps
  const StepTally& tally() const { return tally_; }

 private:
  using Clock = std::chrono::steady_clock;

  void launch(StepPlan plan, Clock::time_point begin) {
    const auto planned = Clock::now();
    runner_.launch(plan);
    const auto launched = Clock::now();
    pacer_.launched(plan, begin, launched);
    const double planning = seconds(planned - begin), launching = seconds(launched - planned);
    tally_.plan.add(planning);
    tally_.launch.add(launching);
    tally_.rows.add(static_cast<double>(plan.tokens.size()));
    StepSums& sums = sums_of(plan);
    sums.plan += planning;
    sums.launch += launching;
    flying_.push_back(std::move(plan));
  }
  void commit() {
    const auto begin = Clock::now();
    const StepResult result = runner_.wait(flying_.front().step);
    const auto done = Clock::now();
    pacer_.ended(begin, done);
    scheduler_.commit(flying_.front(), result);
    const double waiting = seconds(done - begin) + std::exchange(gathering_, 0);
    const auto end = Clock::now();
    pace_.committed(flying_.front(), result, seconds(end - std::exchange(ended_, end)));
    const double committing = seconds(end - done);
    tally_.wait.add(waiting);
    tally_.commit.add(committing);
    StepSums& sums = sums_of(flying_.front());
    ++sums.steps;
    sums.wait += waiting;
    sums.commit += committing;
    flying_.pop_front();
    ++steps_;
  }
  StepSums& sums_of(const StepPlan& plan) {
    if (plan.only_decodes()) return tally_.decodes;
    const bool checks = !plan.spans.empty() && std::ranges::all_of(plan.spans, [](const Span& s) {
      return s.sample && s.count == 1 + s.draft;
    });
    return checks ? tally_.checks : tally_.others;
  }
  // Drafts follow a step's tokens, so a model drafts while no other step is in flight, unless it
  // needs no host for that.
  size_t depth() const {
    const StepPlan& last = flying_.back();
    return pace_.weighs() && last.drafts && !last.chained ? 1 : depth_;
  }
  void gather();
  void take(Command& command);
  void report();

  sched::Scheduler& scheduler_;
  Runner& runner_;
  Queue<Command>& inbox_;
  Outbox outbox_;
  size_t depth_;
  std::vector<TierIo*> sources_;
  StepPacer pacer_;
  DraftPace pace_;
  Clock::time_point ended_{};  // when the last step was committed, or the engine was woken
  double gathering_ = 0;       // seconds of gather() since the last commit
  bool stalled_ = false;
  uint64_t steps_ = 0;
  StepTally tally_;
  Errands errands_;
  std::string refusal_;  // why no sequence is taken; empty: they are
  std::deque<StepPlan> flying_;
};

}  // namespace skiff::engine
