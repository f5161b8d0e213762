#include "engine/device_runner.h"

#include <utility>

namespace skiff {

DeviceRunner::DeviceRunner(StepExecutor& executor)
    : thread_([this, &executor] {
        while (const auto plan = plans_.pop()) results_.push(executor.run(*plan));
      }) {}

DeviceRunner::~DeviceRunner() {
  plans_.close();
  thread_.join();
}

StepResult DeviceRunner::wait(uint64_t step) {
  std::optional<StepResult> result = results_.pop();
  SKIFF_CHECK(result && result->step == step, "step {} was not launched next", step);
  return *std::move(result);
}

StepResult DirectRunner::wait(uint64_t step) {
  StepResult result = executor_.collect();
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return result;
}

std::unique_ptr<Runner> make_runner(StepExecutor& executor, Device device) {
  if (device == Device{}) return std::make_unique<DeviceRunner>(executor);
  return std::make_unique<DirectRunner>(executor);
}

}  // namespace skiff
