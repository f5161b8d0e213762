#include "engine/device_runner.h"

#include <pthread.h>

#include <utility>

namespace skiff::engine {

HostRunner::HostRunner(StepExecutor& executor, RankOfThread rank)
    : rank_(std::move(rank)), thread_([this, &executor] {
        const std::string name =
            rank_.index == 0 ? "device" : "device " + std::to_string(rank_.index);
        pthread_setname_np(pthread_self(), name.c_str());
        executor.bind_thread();
        while (auto command = commands_.pop()) carry_out(executor, *command);
      }) {}

void HostRunner::carry_out(StepExecutor& executor, Command& command) {
  if (const auto* plan = std::get_if<StepPlan>(&command))
    return results_.push(run(executor, *plan));
  std::get<std::packaged_task<void()>>(command)();
}

std::future<void> HostRunner::begin(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  commands_.push(std::move(task));
  return done;
}

HostRunner::Result HostRunner::run(StepExecutor& executor, const StepPlan& plan) {
  if (failed_) return failed_;
  try {
    return executor.run(plan);
  } catch (const std::exception& error) {
    failed_ = std::current_exception();
    fail(error.what());
  } catch (...) {
    failed_ = std::current_exception();
    fail("unknown");
  }
  return failed_;
}

void HostRunner::fail(const std::string& why) const {
  if (rank_.failed) rank_.failed(why);
}

HostRunner::~HostRunner() {
  commands_.close();
  thread_.join();
}

StepResult HostRunner::wait(uint64_t step) {
  std::optional<Result> popped = results_.pop();
  SKIFF_CHECK(popped, "step {} was not launched", step);
  if (const auto* thrown = std::get_if<std::exception_ptr>(&*popped))
    std::rethrow_exception(*thrown);
  auto& result = std::get<StepResult>(*popped);
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return std::move(result);
}

StepResult DeviceRunner::wait(uint64_t step) {
  StepResult result = executor_.collect();
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return result;
}

std::unique_ptr<Runner> make_runner(StepExecutor& executor, Device device) {
  if (device == Device{}) return std::make_unique<HostRunner>(executor);
  return std::make_unique<DeviceRunner>(executor);
}

}  // namespace skiff::engine
