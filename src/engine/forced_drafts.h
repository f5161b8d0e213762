// engine/forced_drafts.h -- verdicts on drafts that do not depend on what is drawn, for benchmarks:
// the speed that drafts of a given quality would have. The texts are the drafter's, not the
// model's.
#pragma once
#include "engine/step_frame.h"
#include "message/step.h"

namespace skiff::engine {

// Returns how many drafts of the span are kept where each is kept with the probability `rate`, in
// [0, 1], if those before it were. The same for the same sequence and step.
int forced_kept(double rate, const Span& span, uint64_t step);

// Changes a draw of `rows` that has been made so that it keeps these drafts and no others.
// Sequences whose drafts are checked depth by depth, since their rules look back, are checked as
// ever.
void force_verdicts(double rate, const StepPlan& plan, const LogitRows& rows,
                    std::vector<sample::DrawRow>& drawn);

}  // namespace skiff::engine
