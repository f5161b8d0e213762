#include "engine/forced_drafts.h"

#include "base/random.h"

namespace skiff::engine {
namespace {

constexpr Token kNeverDrawn = -2;

// Returns a number in [0, 1).
double uniform(SeqId seq, uint64_t step, int draft) {
  const uint64_t mixed = mix64(mix64(mix64(seq) + step) + static_cast<uint64_t>(draft));
  return static_cast<double>(mixed >> 11) * 0x1p-53;
}

}  // namespace

int forced_kept(double rate, const Span& span, uint64_t step) {
  int kept = 0;
  while (kept < span.draft && uniform(span.seq, step, kept) < rate) ++kept;
  return kept;
}

void force_verdicts(double rate, const StepPlan& plan, const LogitRows& rows,
                    std::vector<sample::DrawRow>& drawn) {
  for (size_t i = rows.num_sampled; i < drawn.size(); ++i) {
    sample::DrawRow& row = drawn[i];
    if (row.depth <= forced_kept(rate, plan.spans[rows.drawn_by[i]], plan.step))
      drawn[static_cast<size_t>(row.after)].instead = row.guess;
    else
      row.guess = kNeverDrawn;
  }
}

}  // namespace skiff::engine
