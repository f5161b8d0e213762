#include "sched/step_aim.h"

#include <algorithm>

namespace skiff::sched {
namespace {

constexpr double kGoodRate = 0.9, kBestRate = 0.97;  // shares of the best rate
// A step below the first is short enough for anybody. The others are the longest ones beside
// decodes, alone, and before very many that wait; unless every step is slow: then a step with
// prompts may take a few times as long as one row does.
constexpr double kShort = 0.02, kMostBeside = 0.05, kMostAlone = 0.13, kMostBehind = 0.1;
constexpr double kSlowSteps = 10;
// Steps in which the backlog would be done: a few for what a burst leaves, as long as steps stay
// below kMostBurst, and more for a queue that does not end.
constexpr double kBurstSteps = 4, kBacklogSteps = 16, kMostBurst = 0.025;
constexpr double kFinish = 0.03, kFinishPrompts = 2;  // see finish_aim()
constexpr double kSlack = 1.08;                       // for attention to the prompts' own positions
constexpr double kLeastLong = 512;                    // tokens; a shorter prompt is never long
// A long prompt takes more steps than this. With half as many, the simulated Azure code trace made
// its longest prompts, of 7,400 tokens, wait twice as long, and the median prompt a fifth less.
constexpr int kLongSteps = 16;

double time_for(const StepCost& cost, double share, double most, const StepLoad& load) {
  const double bound = std::max(most, kSlowSteps * cost.seconds(load.decodes + 1) + load.attention);
  return std::max(kShort, kSlack * cost.time_at_rate(share, load.decodes, load.attention, bound));
}

}  // namespace

double step_aim(const StepCost& cost, double asked, const StepLoad& load) {
  if (asked > 0) return asked;
  if (load.alone) return time_for(cost, kBestRate, kMostAlone, load);
  const double beside = load.only_prompts ? time_for(cost, kBestRate, kMostBehind, load)
                                          : time_for(cost, kGoodRate, kMostBeside, load);
  const double wish =
      std::max(std::min(load.backlog / kBurstSteps, kMostBurst), load.backlog / kBacklogSteps);
  return wish <= beside
             ? beside
             : std::clamp(wish, beside,
                          std::max(beside, time_for(cost, kBestRate, kMostBehind, load)));
}

double finish_aim(double asked, double aim, bool only_prompts) {
  if (asked > 0) return aim;
  return only_prompts ? kFinishPrompts * aim : std::max(aim, kFinish);
}

int long_prompt_for(const StepCost& cost, double asked) {
  const double rows = kLongSteps * static_cast<double>(cost.rows_within(step_aim(cost, asked, {})));
  return static_cast<int>(std::clamp(rows, kLeastLong, 1e9));
}

}  // namespace skiff::sched
