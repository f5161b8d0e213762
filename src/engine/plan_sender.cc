#include "engine/plan_sender.h"

#include "message/wire.h"

namespace skiff::engine {

void PlanSender::launch(const StepPlan& plan) {
  bytes_.clear();
  write_plan(plan, bytes_);
  nodes_.send(bytes_);
  here_->launch(plan);
}

}  // namespace skiff::engine
