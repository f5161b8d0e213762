// engine/runner.h -- the device half of the engine; one for each rank.
#pragma once
#include <cstddef>
#include <functional>

#include "message/step.h"

namespace skiff::engine {

// What the thread that drives a rank shall do besides steps. `rank` counts those of this process,
// from 0.
using RankWork = std::function<void(size_t rank)>;

// launch() returns as soon as the work is enqueued. Steps are computed, and waited for, in the
// order in which they were launched; the host plans step n+1 while the device computes step n.
class Runner {
 public:
  virtual ~Runner() = default;
  // Makes the calling thread the one that launches and waits from now on.
  virtual void bind_thread() {}
  virtual void launch(const StepPlan& plan) = 0;
  virtual StepResult wait(uint64_t step) = 0;
  // Has each rank here do `work`, on the thread that drives it, behind the steps that were
  // launched, all side by side; returns when all have. Throws what the first of them, by number,
  // has thrown: no step suffers from it, and the others have done theirs. Here: the caller drives
  // the only rank.
  virtual void on_ranks(const RankWork& work) { work(0); }
  // Returns the most rows with which another replica computes prompts in the round of the step that
  // was launched last, which then takes as long as theirs; 0: none does, or it is not known yet.
  virtual int prompt_rows_beside() const { return 0; }
};

}  // namespace skiff::engine
