// engine/drafting_runner.h -- a Runner whose results have drafts for the next step.
#pragma once
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "draft/proposer.h"
#include "engine/runner.h"

namespace skiff::engine {

// Drafts come from what the host knows: it reads the texts of sequences that start while the device
// computes, and drafts when a step has ended. Nothing else in the step loop knows of it. Where the
// runner's own results have drafts, from a model, they come first.
class DraftingRunner final : public Runner {
 public:
  // settings.method is one of draft::methods(). Tokens are appended to the runner's own drafts
  // where there are at least `least` of these.
  DraftingRunner(std::unique_ptr<Runner> runner, const draft::Settings& settings, int least = 0)
      : runner_(std::move(runner)), proposer_(settings), least_(least) {}
  void bind_thread() override { runner_->bind_thread(); }
  void launch(const StepPlan& plan) override;
  StepResult wait(uint64_t step) override;
  void on_ranks(const RankWork& work) override { runner_->on_ranks(work); }
  int prompt_rows_beside() const override { return runner_->prompt_rows_beside(); }

 private:
  std::unique_ptr<Runner> runner_;
  draft::Proposer proposer_;
  const int least_;
  // The spans of steps in flight, and whether tokens are drafted behind them.
  std::deque<std::pair<std::vector<Span>, bool>> flying_;
};

}  // namespace skiff::engine
