// engine/lockstep_runner.h -- the Runner of a replica that shares experts with others.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "base/queue.h"
#include "engine/lockstep.h"
#include "engine/round_work.h"
#include "engine/runner.h"

namespace skiff::engine {

// A thread of this object, the only one that drives the replica's work, has it compute the steps in
// the order of their launches, each in a round of the replica's, and take part in the rounds of
// others while it has none. launch() and wait() are called by one thread.
//
// If a round throws, the group ends, and so does this replica's part in it: this wait() and all
// later ones throw the same, in other replicas comm::GroupEnded with `replica N: ` and the reason.
class LockstepRunner final : public Runner {
 public:
  // The lockstep must outlive this object. `device`: where the work is computed; a test may say
  // that it is done asynchronously.
  LockstepRunner(Lockstep& lockstep, int replica, std::unique_ptr<RoundWork> work, Device device);
  // The replica is one rank. The executor must outlive this object.
  LockstepRunner(Lockstep& lockstep, int replica, StepExecutor& executor)
      : LockstepRunner(lockstep, replica, make_round_work(executor), executor.device()) {}
  ~LockstepRunner() override;  // computes the launched steps, then ends the thread
  void launch(const StepPlan& plan) override {
    beside_ = 0;
    lockstep_.give(replica_, plan);
  }
  StepResult wait(uint64_t step) override;
  void on_ranks(const RankWork& work) override;
  int prompt_rows_beside() const override { return beside_; }

 private:
  using Result = std::variant<StepResult, std::exception_ptr>;
  void run();
  void begin(const StepPlan& plan);
  void join();
  void collect();
  template <class F>
  void attempt(F work);
  void fail(const char* why);

  Lockstep& lockstep_;
  const int replica_;
  const std::unique_ptr<RoundWork> work_;
  const bool on_host_;
  Queue<Result> results_;
  std::atomic<int> beside_ = 0;  // prompt_rows_beside()
  int in_flight_ = 0;            // the thread's own
  std::exception_ptr failed_;    // what the first round that failed threw; the thread's own
  std::thread thread_;
};

}  // namespace skiff::engine
