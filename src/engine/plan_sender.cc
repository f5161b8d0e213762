#include "engine/plan_sender.h"

#include <stdexcept>
#include <string>

#include "message/wire.h"

namespace skiff::engine {

void PlanSender::launch(const StepPlan& plan) {
  bytes_.clear();
  write_plan(plan, bytes_);
  nodes_.send(bytes_);
  here_->launch(plan);
}

StepResult PlanSender::wait(uint64_t step) {
  StepResult result = here_->wait(step);
  if (const std::string why = nodes_.reason(); !why.empty()) throw std::runtime_error(why);
  return result;
}

}  // namespace skiff::engine
