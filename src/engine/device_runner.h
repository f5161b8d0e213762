// engine/device_runner.h -- the real Runner: a thread that computes launched steps in order.
#pragma once
#include <thread>

#include "base/queue.h"
#include "engine/runner.h"
#include "engine/step_executor.h"

namespace skiff {

// launch() and wait() are called by one thread. The thread of this object is the only one that
// drives the executor.
class DeviceRunner : public Runner {
 public:
  explicit DeviceRunner(StepExecutor& executor);
  ~DeviceRunner() override;  // computes what is launched, then ends the thread
  void launch(const StepPlan& plan) override { plans_.push(plan); }
  StepResult wait(uint64_t step) override;

 private:
  Queue<StepPlan> plans_;
  Queue<StepResult> results_;
  std::thread thread_;
};

}  // namespace skiff
