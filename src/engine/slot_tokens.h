// engine/slot_tokens.h -- what each slot hands to its next step where Ops computes.
#pragma once
#include "message/step.h"
#include "ops/ops.h"

namespace skiff::engine {

// Tables that operations of one step write and those of the next read, in stream order.
class SlotTokens {
 public:
  // `drafts` of a slot, where steps are chained (StepPlan::chained), or 0.
  SlotTokens(int max_slots, int drafts, Ops& ops);
  static size_t bytes(int max_slots, int drafts);

  // [(1 + drafts) * max_slots] i32: the last tokens of all slots, then their first drafts, and so
  // on, as BatchBuilder numbers them for Ops::load_tokens.
  Tensor all() const { return all_; }
  Tensor last() const { return all_.row_range(0, max_slots_); }
  // What was drafted `depth` tokens behind the last ones, from 0.
  Tensor drafts(int depth) const { return all_.row_range((1 + depth) * max_slots_, max_slots_); }
  Tensor refused() const { return refused_; }  // DraftsSettled::refused
  Tensor moved() const { return moved_; }      // DraftsSettled::moved

 private:
  int64_t max_slots_;
  Buffer memory_;
  Tensor all_, refused_, moved_;
};

}  // namespace skiff::engine
