// engine/device_runner.h -- the real Runners.
#pragma once
#include <exception>
#include <memory>
#include <thread>
#include <variant>

#include "base/queue.h"
#include "engine/runner.h"
#include "engine/step_executor.h"

namespace skiff::engine {

// For an executor that computes on the calling thread: a thread of this object, the only one that
// drives the executor, computes steps in order of launches while the caller plans. launch() and
// wait() are called by one thread. What a step throws, as when memory runs out, is thrown by its
// wait().
class HostRunner final : public Runner {
 public:
  explicit HostRunner(StepExecutor& executor);
  ~HostRunner() override;  // computes what is launched, then ends the thread
  void launch(const StepPlan& plan) override { plans_.push(plan); }
  StepResult wait(uint64_t step) override;

 private:
  Queue<StepPlan> plans_;
  using Result = std::variant<StepResult, std::exception_ptr>;
  static Result run(StepExecutor& executor, const StepPlan& plan);

  Queue<Result> results_;
  std::thread thread_;
};

// For an executor whose device computes by itself: no thread stands between.
class DeviceRunner final : public Runner {
 public:
  explicit DeviceRunner(StepExecutor& executor) : executor_(executor) {}
  void bind_thread() override { executor_.bind_thread(); }
  void launch(const StepPlan& plan) override { executor_.launch(plan); }
  StepResult wait(uint64_t step) override;

 private:
  StepExecutor& executor_;
};

// The one that fits `device`.
std::unique_ptr<Runner> make_runner(StepExecutor& executor, Device device);

}  // namespace skiff::engine
