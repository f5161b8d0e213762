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
        while (const auto plan = plans_.pop()) results_.push(run(executor, *plan));
      }) {}

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
