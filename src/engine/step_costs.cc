#include "engine/step_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "arch/cost.h"
#include "model/kv_cache.h"
#include "model/memory_plan.h"
#include "sched/step_aim.h"

namespace skiff::engine {
namespace {

using sched::StepCost;

// Seconds that the timed steps may take in all, about. What is done once for each size, such as
// loading kernels, does not count: a model of which a step takes long would be left with sizes that
// all take as long as its weights take to be read, from which nothing follows for larger ones. The
// largest models that four H200 hold are timed to the end in this time.
constexpr double kDeviceBudget = 2, kHostBudget = 0.2;
// A few short steps of each size, fewer of the long ones, which vary less. What a size takes is
// expected by the two below it.
struct Rung {
  int rows, repetitions;
};
constexpr Rung kLadder[] = {{1, 2},   {16, 2},  {64, 2},   {128, 2},  {256, 2},  {384, 1},
                            {512, 1}, {768, 1}, {1024, 1}, {1536, 1}, {2048, 1}, {4096, 1}};

class Ladder {
 public:
  Ladder(StepTimer& timer, double budget, int doubling)
      : timer_(timer), budget_(budget), doubling_(doubling) {}

  std::vector<StepCost::Point> climb() {
    for (const Rung& rung : kLadder)
      if (!take(rung)) break;
    std::vector<StepCost::Point> points;
    if (least_.empty()) return points;
    // Sizes for which there was no time follow from the last two.
    std::map<int, double> all = least_;
    for (const Rung& rung : kLadder)
      if (timer_.fits({.prompt = rung.rows})) all.try_emplace(rung.rows, expected(rung.rows));
    for (const auto& [rows, seconds] : all)
      points.push_back(sched::prompt_point(rows, seconds, doubling_));
    return points;
  }

 private:
  // Returns what a step of so many rows will take, by the last two that were timed.
  double expected(int rows) const {
    if (least_.empty()) return 0;
    const auto& [last, seconds] = *least_.rbegin();
    const double rate = seconds / last;
    if (least_.size() == 1) return rate * rows;
    const auto& [before, earlier] = *std::next(least_.rbegin());
    return seconds + std::clamp((seconds - earlier) / (last - before), 0., rate) * (rows - last);
  }

  // Times the steps of a rung, if there is time and room for them. Returns whether there was.
  bool take(const Rung& rung) {
    const StepShape shape{.prompt = rung.rows};
    const int steps = rung.repetitions + 1;
    // Two points make a line, so they are timed however long they take.
    if (!timer_.fits(shape) ||
        (least_.size() >= 2 && spent_ + steps * expected(rung.rows) > budget_))
      return false;
    const double least = timer_.least_alone(shape, rung.repetitions);
    least_.emplace(rung.rows, least);
    spent_ += steps * least;
    return true;
  }

  StepTimer& timer_;
  const double budget_;
  const int doubling_;
  double spent_ = 0;             // seconds of all timed steps
  std::map<int, double> least_;  // the least seconds by rows
};

}  // namespace

StepCost measure_step_cost(StepTimer& timer, const Resolved& resolved, const ModelSpec& spec) {
  const bool on_host = resolved.device.memory() == Device{};
  const int doubling = resolved.limits.policy.row_context;
  const std::vector<StepCost::Point> points =
      Ladder(timer, on_host ? kHostBudget : kDeviceBudget, doubling).climb();
  if (points.empty()) return {};
  // One row reads its weights at about the rate at which attention reads keys and values.
  const auto weights =
      touched_parameters(spec, 1) *
      model::bytes_per_weight(spec, resolved.precision, resolved.schemes, resolved.stored);
  const double kv = model::kv_token_bytes(spec, resolved.precision.kv);
  return {points, {.doubling = doubling, .seconds = points.front().seconds * kv / weights}};
}

std::string describe(const StepCost& cost, const sched::Policy& policy) {
  const StepCost::Point& last = cost.points().back();
  const double aim =
      sched::step_aim(cost, policy.step_seconds, {.only_prompts = policy.only_prompts});
  const int lengthy = policy.long_prompt > 0 ? policy.long_prompt
                                             : sched::long_prompt_for(cost, policy.step_seconds);
  return fmt::format(
      "a step of 1 row takes {:.2f} ms, of {} rows {:.1f} ms, at best {:.0f} rows/s (sizes that "
      "take long are extrapolated). Steps with prompts aim at {:.0f} ms, prompts above {} tokens "
      "are long",
      cost.points().front().seconds * 1e3, last.rows, last.seconds * 1e3, cost.best_rate(),
      aim * 1e3, lengthy);
}

}  // namespace skiff::engine
