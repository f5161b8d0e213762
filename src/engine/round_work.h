// engine/round_work.h -- what computes a replica's part in the rounds of a Lockstep: one rank, or
// several.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/group_runner.h"
#include "engine/lockstep.h"
#include "engine/runner.h"
#include "engine/step_executor.h"

namespace skiff::engine {

// Driven by one thread.
class RoundWork {
 public:
  virtual ~RoundWork() = default;
  virtual void bind_thread() {}
  // Begins a step of the replica's, whose part in the round is among `round` where a device
  // computes.
  virtual void launch(const StepPlan& plan, std::span<const RoundPart> round) = 0;
  // The same without rows, for the experts that others compute with. It leaves no result.
  virtual void run_empty(std::span<const RoundPart> round) = 0;
  // Returns the result of the oldest step that was launched and not collected.
  virtual StepResult collect() = 0;
  virtual void on_ranks(const RankWork& work) = 0;  // Runner::on_ranks()
};

// One rank, driven by the calling thread. `executor` must outlive this.
std::unique_ptr<RoundWork> make_round_work(StepExecutor& executor);
// Several ranks, a thread for each, on `device` as GroupRunner takes it. If one throws, it ends the
// lockstep at once, because what its neighbours wait for may come from ranks that wait for it; and
// all throw comm::GroupEnded with the lockstep's reason. Whatever is given must outlive this.
std::unique_ptr<RoundWork> make_round_work(Lockstep& lockstep, int replica,
                                           const std::vector<GroupRunner::Member>& members,
                                           Device device);

}  // namespace skiff::engine
