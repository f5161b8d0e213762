// sched/policy.h -- who goes before whom, in numbers. Every preference here is bounded, so that
// nobody waits for ever.
#pragma once
#include <algorithm>
#include <cstdint>

namespace skiff {

// A sequence's place in every queue is fixed when it arrives: the number of its arrival, plus
// `ageing` for each unit of priority, plus `long_yields` if its prompt is long. So a sequence is
// overtaken by no more later ones than these numbers say, however long the queue is; nothing has to
// be sorted again as it grows older.
struct Policy {
  int ageing = 1000;      // later arrivals that one unit of priority is worth
  int long_yields = 256;  // later short prompts that go before a long one
  int long_prompt = 0;    // a prompt of more tokens is long; 0: 4 % of the context, at least 512
  // What long prompts may cost in one step, in rows at the beginning of a text: steps stay short
  // for those who stream, and for short prompts that come while a step runs. 0: any number.
  int long_chunk = 1024;
  // A row that looks at so many tokens costs as much as two that look at none: arithmetic of the
  // weights over that of attention. 0: attention costs nothing.
  int row_context = 0;
  // Prompts that may be partly computed at a time, and long ones of them; 0: any number.
  int max_partial = 0;
  int max_long_partial = 1;
  // A sequence for whose prompt there is no memory lets others that fit start before it: so many,
  // and then none until it has started.
  int max_overtakes = 64;
  // Blocks kept free for each running sequence when a new one is let in, counted from the last
  // preemption and decaying with each step, down to reserve_min, which is there from the beginning;
  // never more than the sequence can still use.
  double reserve = 16, reserve_decay = 0.025, reserve_min = 0;
};

// Policy::long_prompt where nobody sets it: four per cent, as FastDeploy has it, but no chunks so
// small that they waste the device.
constexpr int default_long_prompt(int max_context) { return std::max(max_context / 25, 512); }

}  // namespace skiff
