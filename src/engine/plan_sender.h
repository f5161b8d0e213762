// engine/plan_sender.h -- the Runner of node 0: the other nodes compute what it computes.
#pragma once
#include <memory>
#include <vector>

#include "comm/nodes.h"
#include "engine/runner.h"

namespace skiff::engine {

// Sends each plan to the other nodes, whose NodeWorker carries it out, and to the runner of the
// ranks here, whose results it returns.
class PlanSender final : public Runner {
 public:
  PlanSender(std::unique_ptr<Runner> here, comm::Nodes& nodes)
      : here_(std::move(here)), nodes_(nodes) {}
  void bind_thread() override { here_->bind_thread(); }
  void launch(const StepPlan& plan) override;
  // Throws where the group has ended: what devices have then computed has no meaning.
  StepResult wait(uint64_t step) override;
  void on_ranks(const RankWork& work) override { here_->on_ranks(work); }  // this node's alone

 private:
  const std::unique_ptr<Runner> here_;
  comm::Nodes& nodes_;
  std::vector<std::byte> bytes_;  // memory that is kept from plan to plan
};

}  // namespace skiff::engine
