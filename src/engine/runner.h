// engine/runner.h -- the device half of the engine; one for each rank.
#pragma once
#include "message/step.h"

namespace skiff::engine {

// launch() returns as soon as the work is enqueued. Steps are computed, and waited for, in the
// order in which they were launched; the host plans step n+1 while the device computes step n.
class Runner {
 public:
  virtual ~Runner() = default;
  // Makes the calling thread the one that launches and waits from now on.
  virtual void bind_thread() {}
  virtual void launch(const StepPlan& plan) = 0;
  virtual StepResult wait(uint64_t step) = 0;
};

}  // namespace skiff::engine
