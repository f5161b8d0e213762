// sched/policy.h -- the scheduling policy, as numbers. Every preference here is bounded, so that no
// sequence starves.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "sched/step_cost.h"

namespace skiff::sched {

// A sequence's place in every queue is fixed when it arrives: the number of its arrival, plus
// `ageing` for each unit of priority, plus what its prompt yields. So a sequence is overtaken by no
// more later ones than these numbers say, however long the queue is; nothing has to be sorted again
// as it grows older.
struct Policy {
  int ageing = 1000;      // later arrivals that one unit of priority is worth
  int long_yields = 256;  // later arrivals with short prompts that go before a long one
  // A prompt that is not long yields to two later arrivals for each doubling of its tokens beyond
  // this number, and to `long_yields` at most: what a burst waits for becomes shorter for most, and
  // for its longest prompts longer by a few of the others. 0: it yields to none.
  int yield_tokens = 256;
  // A prompt of more tokens is long. 0: what takes many steps of the aim; without one, 4 % of the
  // context, at least 512.
  int long_prompt = 0;
  // What a step costs. Where that is known, prompts are cut so that a step takes no longer than its
  // aim (sched/step_aim.h), and long ones share it with the others.
  StepCost cost;
  double step_seconds = 0;  // the aim; 0: found from `cost`; infinity: none
  // Nothing decodes on this server that would wait for a step to end, so the aim that is found is
  // that of the best rate.
  bool only_prompts = false;
  // Drafts are kept at random at this rate (draft::Settings::forced_rate), whatever the text says
  // of them, so there is nothing to be learned from it.
  std::optional<double> forced_rate;
  // The most blocks that a step with decodes loads from lower tiers of the cache; 0: as many as its
  // aim has time for, or any number where there is no aim.
  int max_loads = 0;
  // Limits what long prompts cost in one step where there is no aim, so that steps stay short for
  // sequences that decode and for short prompts that arrive meanwhile. In units of a row at
  // position 0; 0 stands for no limit.
  int long_chunk = 1024;
  // The context at which a row costs twice as much as at position 0: the FLOPs of a row in the
  // weights over those in attention per token of context. 0: attention costs nothing.
  int row_context = 0;
  // How many prompts, and how many long ones among them, may be partly computed at a time; 0: any
  // number.
  int max_partial = 0;
  int max_long_partial = 1;
  // How many large prompts may have rows in one step; 0: any number. Those are large, but not long,
  // that have more rows than `large_prompt` to compute when they start. Two of them in a step end
  // later than the first would alone, and hardly sooner than the second would behind it.
  int max_large = 0;
  int large_prompt = 2048;
  // How many others that fit may start before a sequence whose prompt does not fit into memory;
  // then none starts until it has started.
  int max_overtakes = 64;
  // Blocks kept free for each running sequence when a new one is admitted. The number is `reserve`
  // after a preemption and decays with each step down to `reserve_min`, its initial value; it is
  // never more than the sequence can still use.
  double reserve = 16, reserve_decay = 0.025, reserve_min = 0;
};

// Returns how many later arrivals with shorter prompts go before one of `tokens` that is not long.
constexpr int short_yields(int tokens, const Policy& policy) {
  if (policy.yield_tokens == 0 || tokens < policy.yield_tokens) return 0;
  const auto square = [](uint64_t n) { return n * n; };
  const uint64_t ratio =
      square(static_cast<uint64_t>(tokens)) / square(static_cast<uint64_t>(policy.yield_tokens));
  return std::min<int>(std::bit_width(ratio) - 1, policy.long_yields);
}

// Returns the policy of a server that computes prompts for others: one large prompt after the
// other, each in as few steps as take no rows of it at a worse rate. Small ones that wait fill a
// step up.
inline Policy prefill_policy(Policy policy) {
  policy.only_prompts = true;
  policy.max_large = 1;
  return policy;
}

// The default of Policy::long_prompt without an aim: four per cent of the context, as in
// FastDeploy, but not chunks so small that they waste the device.
constexpr int default_long_prompt(int max_context) { return std::max(max_context / 25, 512); }

}  // namespace skiff::sched
