// sched/step_aim.h -- how long a step with prompts should take.
#pragma once
#include "sched/step_cost.h"

namespace skiff::sched {

// What a step is planned beside.
struct StepLoad {
  int decodes = 0;            // sequences that decode
  double attention = 0;       // seconds of their attention
  double backlog = 0;         // seconds that the prompts which wait take
  bool alone = false;         // one prompt is all there is
  bool only_prompts = false;  // see Policy
};

// Returns the seconds that a step with prompts should take: `asked`, or, where that is 0, the least
// time in which prompts are computed at nearly the best rate. Longer steps compute them at a better
// rate, which shortens every wait in the queue; but sequences that decode, and requests that arrive
// meanwhile, wait for the step to end. So a prompt that is alone gets a longer step, and so do
// those behind which very many wait. Requires cost.known().
double step_aim(const StepCost& cost, double asked, const StepLoad& load);

// Returns the seconds that a step with the aim `aim` may take instead if a prompt ends in it, not
// less than `aim`. The tokens of other sequences come a few milliseconds later; but a rest of the
// prompt would have its first token wait for a whole step more. Where there are only prompts, the
// step may take twice as long.
double finish_aim(double asked, double aim, bool only_prompts = false);

// Returns the length from which a prompt counts as long: it takes many such steps.
int long_prompt_for(const StepCost& cost, double asked);

}  // namespace skiff::sched
