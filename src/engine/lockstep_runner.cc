#include "engine/lockstep_runner.h"

#include <fmt/format.h>
#include <pthread.h>

#include <optional>
#include <span>
#include <utility>

namespace skiff::engine {

LockstepRunner::LockstepRunner(Lockstep& lockstep, int replica, std::unique_ptr<RoundWork> work,
                               Device device)
    : lockstep_(lockstep), replica_(replica), work_(std::move(work)), on_host_(device == Device{}) {
  lockstep_.open(replica_);
  thread_ = std::thread([this] { run(); });
}

LockstepRunner::~LockstepRunner() {
  lockstep_.close(replica_);
  thread_.join();
}

void LockstepRunner::run() {
  pthread_setname_np(pthread_self(), "device");
  work_->bind_thread();
  for (;;) {
    Lockstep::Turn turn = lockstep_.next(replica_, in_flight_ > 0);
    if (std::holds_alternative<Lockstep::Closed>(turn)) return;
    if (auto* task = std::get_if<Lockstep::Task>(&turn))
      (*task)();
    else if (const auto* plan = std::get_if<StepPlan>(&turn))
      begin(*plan);
    else
      join();
  }
}

// Does work(), unless an earlier round has failed.
template <class F>
void LockstepRunner::attempt(F work) {
  if (failed_) return;
  try {
    work();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown");
  }
}

// A plan that only copies blocks is no round.
void LockstepRunner::begin(const StepPlan& plan) {
  attempt([&] {
    const bool agrees = !on_host_ && !plan.spans.empty();
    const auto round = agrees ? lockstep_.agree(replica_) : std::span<const RoundPart>{};
    beside_ = prompt_rows_beside_of(round, static_cast<size_t>(replica_));
    work_->launch(plan, round);
    ++in_flight_;
  });
  if (on_host_) collect();
}

// Takes part in a round without rows.
void LockstepRunner::join() {
  attempt([&] {
    work_->run_empty(on_host_ ? std::span<const RoundPart>{} : lockstep_.agree(replica_));
  });
}

// A device that was let go because the group has ended leaves results without meaning.
void LockstepRunner::collect() {
  std::optional<StepResult> result;
  attempt([&] {
    StepResult computed = work_->collect();
    --in_flight_;
    if (!on_host_) lockstep_.throw_if_ended();
    result = std::move(computed);
  });
  if (result)
    results_.push(std::move(*result));
  else
    results_.push(failed_);
}

void LockstepRunner::fail(const char* why) {
  failed_ = std::current_exception();
  lockstep_.end(fmt::format("replica {}: {}", replica_, why));
}

StepResult LockstepRunner::wait(uint64_t step) {
  if (!on_host_) lockstep_.give(replica_, Lockstep::Task([this] { collect(); }));
  std::optional<Result> popped = results_.pop();
  SKIFF_CHECK(popped, "step {} was not launched", step);
  if (const auto* thrown = std::get_if<std::exception_ptr>(&*popped))
    std::rethrow_exception(*thrown);
  auto& result = std::get<StepResult>(*popped);
  SKIFF_CHECK(result.step == step, "step {} was not launched next", step);
  return std::move(result);
}

void LockstepRunner::on_ranks(const RankWork& work) {
  Lockstep::Task task([&] { work_->on_ranks(work); });
  std::future<void> done = task.get_future();
  lockstep_.give(replica_, std::move(task));
  done.get();
}

}  // namespace skiff::engine
