// engine/step_costs.h -- measures at start-up what a step costs, for the scheduler.
#pragma once
#include <string>

#include "arch/spec.h"
#include "engine/resolved.h"
#include "engine/step_timer.h"
#include "sched/step_cost.h"

namespace skiff::engine {

// The context behind which a StepTimer for this purpose lets rows decode; it times prompts only.
constexpr int kCostContext = 1;

// Times prompts of rising length until they would take longer than two tenths of a second in all
// on a host, and two seconds on a device; beyond them the curve goes on as a line. What attention
// adds is computed from Policy::row_context and the spec.
sched::StepCost measure_step_cost(StepTimer& timer, const Resolved& resolved,
                                  const ModelSpec& spec);

// Returns a line for the log: what was measured, and what the scheduler makes of it.
std::string describe(const sched::StepCost& cost, const sched::Policy& policy);

}  // namespace skiff::engine
