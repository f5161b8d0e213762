// workload/step_table.h -- reads the file that `skiff bench steps --csv` writes.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "sched/step_cost.h"

namespace skiff::workload {

struct MeasuredSteps {
  sched::StepCost decodes, prompts;  // steps with decodes only, and those of one prompt
};

// Other kinds of steps are left out. `context` says what attention costs; that is taken off the
// measured times. An Error names the line, or what is missing.
Result<MeasuredSteps> parse_steps(std::string_view text, const sched::StepCost::Context& context);
MeasuredSteps read_steps(const std::string& path, const sched::StepCost::Context& context);

}  // namespace skiff::workload
