#include "engine/device_runner.h"

#include <pthread.h>

#include <utility>

namespace skiff::engine {

HostRunner::HostRunner(StepExecutor& executor)
    : thread_([this, &executor] {
        pthread_setname_np(pthread_self(), "device");
        executor.bind_thread();
        while (const auto plan = plans_.pop()) results_.push(run(executor, *plan));
      }) {}

HostRunner::Result HostRunner::run(StepExecutor& executor, const StepPlan& plan) {
  if (failed_) return failed_;
  try {
    return executor.run(plan);
  } catch (...) {
    return failed_ = std::current_exception();
  }
}

HostRunner::~HostRunner() {
  plans_.close();
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
