#include "engine/step_timer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skiff::engine {
namespace {

// Returns the token of a position of a slot. Neighbours differ, so that rows choose different
// experts.
Token token_at(int slot, int position, int vocab) {
  const uint32_t mixed =
      (static_cast<uint32_t>(slot) * 40503u + static_cast<uint32_t>(position)) * 2654435761u;
  return static_cast<Token>((mixed >> 8) % static_cast<uint32_t>(std::max(vocab, 1)));
}

void open_slots(StepPlan& plan, const SamplingParams& params) {
  for (const Span& span : plan.spans)
    plan.opened.push_back(
        {.slot = span.slot, .params = params, .history = {0}, .prompt_len = 1, .stop_tokens = {}});
}

}  // namespace

StepTimer::StepTimer(Runner& runner, const sched::Limits& limits, Room room, int context)
    : runner_(runner), limits_(limits), room_(room), context_(context) {
  SKIFF_CHECK(context >= 1 && context < limits.max_context, "a context of {}", context);
}

int StepTimer::blocks_for(int tokens) const {
  return (tokens + room_.block_size - 1) / room_.block_size;
}

bool StepTimer::fits(const StepShape& shape) const {
  const int most = limits_.max_context, whole = shape.prompt / most, rest = shape.prompt % most;
  const int64_t blocks = int64_t{shape.decodes} * blocks_for(context_ + 1) +
                         int64_t{whole} * blocks_for(most) + blocks_for(rest);
  return shape.rows() >= 1 && shape.rows() <= limits_.max_rows && blocks <= room_.blocks &&
         shape.decodes + whole + (rest > 0) <= limits_.max_seqs;
}

// Adds the next slot with `count` rows behind `begin` positions.
void StepTimer::add(StepPlan& plan, int begin, int count, int first_block) const {
  const auto slot = static_cast<int>(plan.spans.size());
  plan.spans.push_back({.seq = static_cast<SeqId>(slot),
                        .slot = slot,
                        .begin = begin,
                        .count = count,
                        .sample = true});
  for (int i = begin; i < begin + count; ++i)
    plan.tokens.push_back(token_at(slot, i, limits_.vocab));
  for (int block = 0; block < blocks_for(begin + count); ++block)
    plan.pages.push_back(first_block + block);
  plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
}

StepPlan StepTimer::plan_of(const StepShape& shape) const {
  SKIFF_CHECK(fits(shape), "a step of {} decodes and {} rows of prompts", shape.decodes,
              shape.prompt);
  StepPlan plan{.page_start = {0}};
  const int each = blocks_for(context_ + 1);
  for (int i = 0; i < shape.decodes; ++i) add(plan, context_, 1, i * each);
  int block = room_.blocks;  // prompts lie at the end of the pool
  for (int left = shape.prompt; left > 0;) {
    const int count = std::min(left, limits_.max_context);
    add(plan, 0, count, block -= blocks_for(count));
    left -= count;
  }
  return plan;
}

// All steps have the same number.
StepResult StepTimer::run(const StepPlan& plan) {
  runner_.launch(plan);
  return runner_.wait(plan.step);
}

// Computes the contexts of the first `decodes` sequences, so that steps read no stray bits. Each
// step has as many rows as the limits allow: 256 sequences of 1,000 positions take long otherwise.
void StepTimer::fill(int decodes) {
  const int each = blocks_for(context_ + 1);
  for (int begin = 0; filled_ < decodes;) {
    StepPlan plan{.page_start = {0}};
    for (int room = limits_.max_rows; room > 0 && filled_ < decodes;) {
      const int count = std::min(context_ - begin, room);
      add(plan, begin, count, filled_ * each);
      plan.spans.back().sample = false;
      plan.spans.back().next = 0;
      room -= count;
      begin += count;
      if (begin == context_) ++filled_, begin = 0;
    }
    run(plan);
  }
}

std::vector<double> StepTimer::seconds(const StepShape& shape, int repetitions) {
  fill(shape.decodes);
  StepPlan plan = plan_of(shape);
  open_slots(plan, {.temperature = 0});
  runner_.launch(plan);
  std::vector<double> out;
  for (int i = 0; i < repetitions; ++i) {
    runner_.launch(plan);
    const double before = runner_.wait(plan.step).seconds;
    if (i > 0) out.push_back(before);
  }
  const double last = runner_.wait(plan.step).seconds;
  if (repetitions > 0) out.push_back(last);
  return out;
}

double StepTimer::least_alone(const StepShape& shape, int repetitions) {
  fill(shape.decodes);
  StepPlan plan = plan_of(shape);
  open_slots(plan, {.temperature = 0});
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repetitions; ++i) {
    const double seconds = run(plan).seconds;
    if (i > 0) least = std::min(least, seconds);
  }
  return least;
}

bool StepTimer::is_finite(const StepShape& shape) {
  fill(shape.decodes);
  StepPlan plan = plan_of(shape);
  open_slots(plan, {.temperature = 0, .logprobs = 0});
  const StepResult result = run(plan);
  return std::ranges::all_of(result.logprobs, [](const auto& drawn) {
    return drawn.size() == 1 && std::isfinite(drawn.front().chosen.logprob);
  });
}

double median(std::vector<double> seconds) {
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

}  // namespace skiff::engine
