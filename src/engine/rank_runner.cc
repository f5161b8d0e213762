#include "engine/rank_runner.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace skiff::engine {

DeviceThread::DeviceThread(StepExecutor& executor, RankOfThread rank)
    : executor_(executor), rank_(std::move(rank)), thread_([this] { run(); }) {}

DeviceThread::~DeviceThread() {
  commands_.close();
  thread_.join();
}

// Does work(), unless an earlier one has failed.
template <class F>
void DeviceThread::attempt(F work) {
  if (failed_) return;
  const auto note = [&](const char* why) {
    failed_ = std::current_exception();
    rank_.failed(why);
  };
  try {
    work();
  } catch (const std::exception& error) {
    note(error.what());
  } catch (...) {
    note("unknown");
  }
}

void DeviceThread::run() {
  pthread_setname_np(pthread_self(), ("device " + std::to_string(rank_.index)).c_str());
  attempt([&] { executor_.bind_thread(); });
  while (auto command = commands_.pop()) {
    if (auto* task = std::get_if<std::packaged_task<void()>>(&*command)) {
      (*task)();
      continue;
    }
    if (const auto* step = std::get_if<Launch>(&*command)) {
      attempt([&] { executor_.launch(step->plan, step->round); });
      continue;
    }
    std::optional<StepResult> result;
    attempt([&] { result = collect(std::get<uint64_t>(*command)); });
    if (result)
      results_.push(std::move(*result));
    else
      results_.push(failed_);
  }
}

StepResult DeviceThread::collect(uint64_t step) {
  StepResult result = executor_.collect();
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return result;
}

std::future<void> DeviceThread::begin(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  commands_.push(std::move(task));
  return done;
}

StepResult DeviceThread::wait(uint64_t step) {
  std::optional<Result> popped = results_.pop();
  SKIFF_CHECK(popped, "step {} was not expected", step);
  if (const auto* thrown = std::get_if<std::exception_ptr>(&*popped))
    std::rethrow_exception(*thrown);
  return std::move(std::get<StepResult>(*popped));
}

}  // namespace skiff::engine
