// engine/device_runner.h -- the two implementations of Runner over a StepExecutor.
#pragma once
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <variant>

#include "base/queue.h"
#include "engine/rank_runner.h"
#include "engine/step_executor.h"

namespace skiff::engine {

// For executors that compute on the calling thread. A thread of this object, the only one that
// drives the executor, computes the steps in the order of their launches while the caller plans.
// launch() and wait() are called by one thread. If a step throws, for example because memory runs
// out, its wait() throws the same exception. It leaves the executor in the middle of a step, so no
// later step is computed: their wait() throws the exception, too.
class HostRunner final : public RankRunner {
 public:
  explicit HostRunner(StepExecutor& executor) : HostRunner(executor, {}) {}
  HostRunner(StepExecutor& executor, RankOfThread rank);
  ~HostRunner() override;  // computes the launched steps, then ends the thread
  // Who computes on the host learns of others' rows where these meet.
  void launch_in_round(const StepPlan& plan, std::span<const RoundPart> /*round*/) override {
    commands_.push(plan);
  }
  void expect(uint64_t /*step*/) override {}  // a step is collected as soon as it is computed
  std::future<void> begin(std::function<void()> work) override;
  StepResult wait(uint64_t step) override;

 private:
  using Command = std::variant<StepPlan, std::packaged_task<void()>>;
  using Result = std::variant<StepResult, std::exception_ptr>;
  Result run(StepExecutor& executor, const StepPlan& plan);
  void carry_out(StepExecutor& executor, Command& command);
  void fail(const std::string& why) const;

  const RankOfThread rank_;
  Queue<Command> commands_;
  Queue<Result> results_;
  std::exception_ptr failed_;  // what the first step that failed threw; the thread's own
  std::thread thread_;
};

// For executors whose device computes asynchronously, so that no extra thread is needed.
class DeviceRunner final : public Runner {
 public:
  explicit DeviceRunner(StepExecutor& executor) : executor_(executor) {}
  void bind_thread() override { executor_.bind_thread(); }
  void launch(const StepPlan& plan) override { executor_.launch(plan); }
  StepResult wait(uint64_t step) override;

 private:
  StepExecutor& executor_;
};

// Makes the runner that suits `device`.
std::unique_ptr<Runner> make_runner(StepExecutor& executor, Device device);

}  // namespace skiff::engine
