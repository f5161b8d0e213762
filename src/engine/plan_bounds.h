// engine/plan_bounds.h -- whether a plan that came from another process can be carried out here.
#pragma once
#include "base/result.h"
#include "message/step.h"
#include "sched/scheduler.h"

namespace skiff::engine {

// Sizes of what a rank has.
struct PlanBounds {
  sched::Limits limits;
  int block_size = 1;
  int blocks = 0, host_blocks = 0;
};

// Judges what read_plan() cannot know: slots, positions, tokens, blocks and rows within their
// sizes, no slot twice, pages for every row. The rules of draws (OpenSlot::params) are those that
// node 0 has judged when the request came. Returns kInvalid with the first number that is out of
// range.
Status check_plan(const StepPlan& plan, const PlanBounds& bounds);

}  // namespace skiff::engine
