#include "engine/drafting_runner.h"

#include "base/check.h"

namespace skiff::engine {

void DraftingRunner::launch(const StepPlan& plan) {
  runner_->launch(plan);
  // A slot is opened only when no step in flight names it.
  for (const OpenSlot& slot : plan.opened) proposer_.open(slot);
  flying_.push_back({plan.spans, plan.drafts});
  proposer_.read_on();
}

StepResult DraftingRunner::wait(uint64_t step) {
  StepResult result = runner_->wait(step);
  SKIFF_CHECK(!flying_.empty() && flying_.front().first.size() == result.tokens.size());
  const auto [spans, drafts] = std::move(flying_.front());
  flying_.pop_front();
  result.drafts.resize(spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!spans[i].sample) continue;
    std::vector<Token> all = proposer_.next(spans[i].slot, result.tokens[i], result.drafts[i]);
    if (std::ssize(result.drafts[i]) >= least_) result.drafts[i] = std::move(all);
  }
  if (!drafts) result.drafts.assign(spans.size(), {});
  return result;
}

}  // namespace skiff::engine
