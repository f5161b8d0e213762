// sched/plan_builder.h -- one StepPlan in the making, and the room that it has left. Included by
// this room only.
#pragma once
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace skiff::sched {

// What the sequences want of a step.
struct Wanted {
  int decodes = 0;        // sequences that want one row each
  int prompts = 0;        // others, which want more: those that run, and all that wait
  int long_rows = 0;      // rows that long prompts which run still want; 0: none runs
  int pages = 0;          // about how many pages sequences that run name
  bool computes = false;  // whether any that runs wants rows
  double base = 0;        // the seconds of a step with the decodes alone; 0: not known
  double aim = 0;         // the seconds that a step with prompts should take; 0: there is no aim
  double finish = 0;      // the seconds that it may take if a prompt ends in it; at least `aim`
  double load = 0;        // the seconds of loading one block; 0: not known
};

class PlanBuilder {
 public:
  // Drafts leave room for the rows that decodes and prompts want.
  PlanBuilder(uint64_t step, const Limits& limits, const Wanted& wanted);

  int rows_left() const { return rows_; }
  // Returns how many drafts of a sequence about to decode are checked in this step.
  int drafts_for(const Sequence& s) const;
  // Returns how many tokens the sequence may expect of its drafts if it is planned only when the
  // token before them is known; 0 if that is known, or if they are not worth checking.
  double worth_waiting(const Sequence& s) const;
  // Whether the sequence is large, see Policy, and whether it is one more than the step may have.
  bool is_large(const Sequence& s) const;
  bool is_one_too_large(const Sequence& s) const;
  // Returns how many rows of a prompt to compute in this step; 0: none.
  int rows_for(const Sequence& s) const;
  // Plans rows [s.planned, s.planned + count), the last `draft` of them drafts. The sequence has a
  // slot and blocks for them.
  void add(Sequence& s, int count, int draft);
  // Returns how many of `wanted` blocks are loaded from lower tiers beside the rows of this step.
  int take_loads(size_t wanted);
  // Returns whether rows that read such a block may be in it, so that all of its rows wait: if none
  // are that need not. The others come in the next step.
  bool may_wait_for_loads() const { return waits_ || !(computes_ || rows_ < limits_.max_rows); }
  void wait_for_loads() { waits_ = true; }
  StepPlan take() { return std::move(plan_); }

 private:
  void reserve(size_t seqs, size_t pages);
  void open(Sequence& s);
  double cost_of_row(const Sequence& s) const;
  int timed_rows(const Sequence& s, int most) const;

  const Limits& limits_;
  StepPlan plan_;
  int rows_, logit_rows_;  // rows that are left
  int large_ = 0;          // large prompts with rows in it
  int loads_;              // blocks that may still be loaded
  bool computes_;          // see Wanted
  bool waits_ = false;     // its rows wait for its loads
  int draft_rows_;         // draft rows that are left
  DraftLength draft_length_;
  double long_cost_;   // the cost that is left, see Policy
  int long_rows_ = 0;  // with an aim: rows that are kept for a long prompt that runs
  // With an aim: when the step should end, with long prompts and without. 0: no aim.
  double end_ = 0, short_end_ = 0;
  double finish_ = 0;       // when it should end if a short prompt ends in it, too
  double attention_ = 0;    // seconds of the attention planned so far
  int prompt_rows_ = 0;     // rows of prompts planned so far
  bool owes_long_ = false;  // a long prompt runs, and none of its rows is planned
};

}  // namespace skiff::sched
