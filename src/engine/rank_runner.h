// engine/rank_runner.h -- a Runner on a thread of its own, for one of several ranks.
#pragma once
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/queue.h"
#include "engine/round.h"
#include "engine/runner.h"
#include "engine/step_executor.h"

namespace skiff::engine {

// Which rank of a group a thread computes for, and what to call, on the thread, with the reason of
// the first step that throws.
struct RankOfThread {
  int index = 0;
  std::function<void(const std::string& why)> failed;
};

// A Runner of a group: wait() for a step is announced to all ranks first, so that they work on it
// at the same time.
class RankRunner : public Runner {
 public:
  void launch(const StepPlan& plan) final { launch_in_round(plan, {}); }
  // launch() of a step that is a part of `round`: see StepExecutor::launch(). Both are copied.
  virtual void launch_in_round(const StepPlan& plan, std::span<const RoundPart> round) = 0;
  virtual void expect(uint64_t step) = 0;
  // Has the thread do `work` behind the steps that were launched. The future holds what it throws.
  virtual std::future<void> begin(std::function<void()> work) = 0;
  void on_ranks(const RankWork& work) override {
    begin([&work] { work(0); }).get();
  }
};

// For a rank on a device, which computes asynchronously: a thread launches and collects steps in
// the order of the calls, so that one step is planned while another is computed, and the ranks
// launch side by side. launch(), expect() and wait() are called by one thread; wait() needs an
// expect(). What a step throws, its wait() throws, and so do all later ones.
class DeviceThread final : public RankRunner {
 public:
  // The executor must outlive this object.
  DeviceThread(StepExecutor& executor, RankOfThread rank);
  ~DeviceThread() override;  // does what was asked for, then ends the thread
  void launch_in_round(const StepPlan& plan, std::span<const RoundPart> round) override {
    commands_.push(Launch{plan, {round.begin(), round.end()}});
  }
  void expect(uint64_t step) override { commands_.push(step); }
  std::future<void> begin(std::function<void()> work) override;
  StepResult wait(uint64_t step) override;

 private:
  struct Launch {
    StepPlan plan;
    std::vector<RoundPart> round;
  };
  using Command = std::variant<Launch, uint64_t, std::packaged_task<void()>>;
  using Result = std::variant<StepResult, std::exception_ptr>;
  void run();
  template <class F>
  void attempt(F work);
  StepResult collect(uint64_t step);

  StepExecutor& executor_;
  const RankOfThread rank_;
  Queue<Command> commands_;
  Queue<Result> results_;
  std::exception_ptr failed_;  // the thread's own
  std::thread thread_;
};

}  // namespace skiff::engine
