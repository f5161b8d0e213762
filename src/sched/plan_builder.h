// sched/plan_builder.h -- one StepPlan in the making, and the room that it has left. Included by
// this room only.
#pragma once
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace skiff::sched {

class PlanBuilder {
 public:
  // `decodes`: sequences that want one row each; `prefills`: others want more. Drafts must leave
  // room for both.
  PlanBuilder(uint64_t step, const Limits& limits, int decodes, bool prefills);

  int rows_left() const { return rows_; }
  // Returns how many drafts of a sequence about to decode may be checked in this step.
  int drafts_for(const Sequence& s) const;
  // Returns how many rows of a prompt to compute in this step; 0: none.
  int rows_for(const Sequence& s) const;
  // Plans rows [s.planned, s.planned + count), the last `draft` of them drafts. The sequence has a
  // slot and blocks for them.
  void add(Sequence& s, int count, int draft);
  void open(const Sequence& s);
  StepPlan take() { return std::move(plan_); }

 private:
  double cost_of_row(const Sequence& s) const;

  const Limits& limits_;
  StepPlan plan_;
  int rows_, logit_rows_;  // rows that are left
  int draft_rows_;         // draft rows that are left
  double long_cost_;       // the cost that is left, see Policy
};

}  // namespace skiff::sched
