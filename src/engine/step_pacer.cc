#include "engine/step_pacer.h"

#include <algorithm>
#include <utility>

#include "base/seconds.h"

namespace skiff::engine {
namespace {

constexpr double kHostMargin = 2, kHostFall = 0.98;
// Shorter waits do not tell when a step ended: it may have been over before the host asked.
constexpr double kShortestWait = 20e-6;
constexpr double kRise = 1.0 / 8, kFastestRise = 1.05, kFallWhenLate = 0.9;
constexpr double kLeastFactor = 0.25;  // so that a factor that was far too low rises soon

}  // namespace

void StepPacer::launched(const StepPlan& plan, Time begin, Time end) {
  if (!cost_.known()) return;
  host_ = std::max(seconds(end - begin), kHostFall * host_);
  flying_.push_back({.expected = plan.spans.empty() ? 0 : cost_.seconds(plan),
                     .decodes = plan.only_decodes(),
                     .launched = begin});
}

void StepPacer::beside(int prompt_rows) {
  if (flying_.empty() || prompt_rows == 0) return;
  Flight& flight = flying_.back();
  const double theirs = cost_.seconds(prompt_rows);
  if (theirs <= flight.expected) return;
  flight.expected = theirs;
  flight.decodes = false;
}

void StepPacer::ended(Time begin, Time end) {
  if (flying_.empty()) return;
  const Flight flight = flying_.front();
  flying_.pop_front();
  const double took = seconds(end - began(flight));
  ended_ = end;
  if (flight.expected <= 0) return;
  double& factor = this->factor(flight);
  const double seen = took / flight.expected;
  const bool late = seconds(end - begin) < kShortestWait;
  if (late)
    factor = kFallWhenLate * std::min(factor, seen);
  else if (seen < factor)
    factor = seen;
  else
    factor = std::min(factor + kRise * (seen - factor), kFastestRise * factor);
  factor = std::max(factor, kLeastFactor);
}

StepPacer::Time StepPacer::plan_at() const {
  if (flying_.empty()) return {};
  const Flight& flight = flying_.back();
  const double takes = factors_[flight.decodes ? 1 : 0] * flight.expected;
  const double wait = takes - std::max(kLead * takes, kHostMargin * host_);
  if (wait <= 0) return {};
  return began(flight) +
         std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(wait));
}

}  // namespace skiff::engine
