#include "engine/lockstep_runner.h"

#include <fmt/format.h>
#include <pthread.h>

#include <optional>
#include <utility>

namespace skiff::engine {

LockstepRunner::LockstepRunner(Lockstep& lockstep, int replica, StepExecutor& executor)
    : lockstep_(lockstep), replica_(replica), executor_(executor) {
  lockstep_.open(replica_);
  thread_ = std::thread([this] { run(); });
}

LockstepRunner::~LockstepRunner() {
  lockstep_.close(replica_);
  thread_.join();
}

void LockstepRunner::run() {
  pthread_setname_np(pthread_self(), "device");
  executor_.bind_thread();
  for (;;) {
    Lockstep::Turn turn = lockstep_.next(replica_);
    if (std::holds_alternative<Lockstep::Closed>(turn)) return;
    if (auto* task = std::get_if<Lockstep::Task>(&turn))
      (*task)();
    else if (const auto* plan = std::get_if<StepPlan>(&turn))
      results_.push(compute(plan));
    else
      compute(nullptr);
  }
}

// Without a plan, the replica has no rows.
LockstepRunner::Result LockstepRunner::compute(const StepPlan* plan) {
  if (failed_) return failed_;
  try {
    if (plan != nullptr) return executor_.run(*plan);
    executor_.run_empty();
    return StepResult{};
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown");
  }
  return failed_;
}

void LockstepRunner::fail(const char* why) {
  failed_ = std::current_exception();
  lockstep_.end(fmt::format("replica {}: {}", replica_, why));
}

StepResult LockstepRunner::wait(uint64_t step) {
  std::optional<Result> popped = results_.pop();
  SKIFF_CHECK(popped, "step {} was not launched", step);
  if (const auto* thrown = std::get_if<std::exception_ptr>(&*popped))
    std::rethrow_exception(*thrown);
  auto& result = std::get<StepResult>(*popped);
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return std::move(result);
}

void LockstepRunner::on_ranks(const RankWork& work) {
  Lockstep::Task task([&work] { work(0); });
  std::future<void> done = task.get_future();
  lockstep_.give(replica_, std::move(task));
  done.get();
}

}  // namespace skiff::engine
