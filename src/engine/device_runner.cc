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

}  // namespace skiff
