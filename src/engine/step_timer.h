// engine/step_timer.h -- measures how long steps take, without a scheduler: some sequences that
// decode, a chunk of a prompt, or both. For start-up and benchmarks, while no sequence runs.
#pragma once
#include <vector>

#include "engine/runner.h"
#include "sched/scheduler.h"

namespace skiff::engine {

struct StepShape {
  int decodes = 0;  // sequences with one row
  int prompt = 0;   // rows of prompts at position 0; one prompt, unless the context is shorter
  int rows() const { return decodes + prompt; }
};

class StepTimer {
 public:
  struct Room {
    int block_size = 64, blocks = 0;
  };
  // Each row that decodes has `context` positions before it, in blocks of its own. The blocks may
  // hold anything and are overwritten. `runner`, whose executors are warmed up and which nobody
  // else uses meanwhile, must outlive the timer.
  StepTimer(Runner& runner, const sched::Limits& limits, Room room, int context);

  // Returns whether limits and blocks have room for such a step.
  bool fits(const StepShape& shape) const;
  // Computes so many steps of a shape that fits, two in flight as the engine does it, and returns
  // the seconds of each; another one goes ahead.
  std::vector<double> seconds(const StepShape& shape, int repetitions);
  // Returns the least seconds of as many steps of one shape, each waited for before the next one is
  // launched, behind another one. What is launched meanwhile may keep the host from noticing that a
  // step has ended, and then the next one seems to take no time: it matters where single steps are
  // compared.
  double least_alone(const StepShape& shape, int repetitions);
  // Computes one such step and returns whether the log-probability of every token that it draws is
  // a number. Requires fits().
  bool is_finite(const StepShape& shape);

 private:
  StepPlan plan_of(const StepShape& shape) const;
  StepResult run(const StepPlan& plan);
  void add(StepPlan& plan, int begin, int count, int first_block) const;
  void fill(int decodes);
  int blocks_for(int tokens) const;

  Runner& runner_;
  const sched::Limits limits_;
  const Room room_;
  const int context_;
  int filled_ = 0;  // sequences whose context has been computed
};

// Returns the value in the middle of `seconds`, which must not be empty.
double median(std::vector<double> seconds);

}  // namespace skiff::engine
