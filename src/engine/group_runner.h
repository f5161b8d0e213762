// engine/group_runner.h -- computes each plan on all ranks of a group that are here, a thread for
// each.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/rank_runner.h"
#include "engine/step_executor.h"

namespace skiff::engine {

// All ranks get the same plans and sample from the same gathered logits, so every rank knows each
// token; the result is that of the first one here. If a rank throws, the group ends, and wait()
// throws a std::runtime_error with the rank and its reason, then and from then on.
class GroupRunner final : public Runner {
 public:
  struct Member {
    StepExecutor& executor;
    comm::Communicator& group;
  };
  using Failed = std::function<void(const std::string& why)>;
  // By rank. `device`: where the first one computes; a test may say that all compute
  // asynchronously. `failed` is called with the rank and its reason when one has thrown, on its
  // thread and before the group ends; it may be empty.
  GroupRunner(const std::vector<Member>& members, Device device, const Failed& failed = nullptr);
  void launch(const StepPlan& plan) override { launch_in_round(plan, {}); }
  void launch_in_round(const StepPlan& plan, std::span<const RoundPart> round);
  StepResult wait(uint64_t step) override;
  void on_ranks(const RankWork& work) override;

 private:
  const int first_;  // the number of the first rank here
  std::vector<std::unique_ptr<RankRunner>> ranks_;
};

}  // namespace skiff::engine
