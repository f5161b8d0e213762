#include "engine/forced_drafts.h"

#include "base/random.h"

namespace skiff::engine {
namespace {

constexpr Token kNeverDrawn = -2;

// Returns a number in [0, 1).
double uniform(SeqId seq, int position) {
  const uint64_t mixed = mix64(mix64(seq) + static_cast<uint64_t>(position));
  return static_cast<double>(mixed >> 11) * 0x1p-53;
}

}  // namespace

int forced_kept(double rate, const Span& span) {
  const int first = span.begin + span.count - span.draft;
  int kept = 0;
  while (kept < span.draft && uniform(span.seq, first + kept) < rate) ++kept;
  return kept;
}

void force_verdicts(double rate, const StepPlan& plan, LogitRows& rows) {
  for (size_t i = rows.num_sampled; i < rows.drawn.size(); ++i) {
    sample::DrawRow& row = rows.drawn[i];
    const bool kept = row.depth <= forced_kept(rate, plan.spans[rows.drawn_by[i]]);
    if (kept)
      rows.drawn[static_cast<size_t>(row.after)].instead = row.guess;
    else
      row.guess = kNeverDrawn;
  }
}

}  // namespace skiff::engine
