#include "serve/service/request_report.h"

#include <algorithm>

#include "base/seconds.h"
#include "serve/service/constraint_compiler.h"

namespace skiff::service {
namespace {

RequestSummary summary_of(const OpenRequest& request, std::optional<Refusal> refusal) {
  const Prepared& prepared = request.prepared;
  RequestSummary summary{.tag = prepared.tag, .arrived = request.arrived_at};
  for (const OpenSequence& sequence : request.sequences) {
    const auto least = [&](double& value, ServiceClock::time_point time) {
      if (time == ServiceClock::time_point{}) return;
      const double after = seconds(time - request.arrived);
      value = value < 0 ? after : std::min(value, after);
    };
    least(summary.queued, sequence.admitted);
    least(summary.first_token, sequence.first_token);
  }
  summary.total = seconds(ServiceClock::now() - request.arrived);
  summary.usage = request.usage;
  summary.n = prepared.n;
  summary.max_tokens = prepared.stop.max_tokens;
  summary.temperature = prepared.params.temperature;
  summary.top_p = prepared.params.top_p;
  summary.top_k = prepared.params.top_k;
  summary.frequency = prepared.params.frequency;
  summary.presence = prepared.params.presence;
  summary.repetition = prepared.params.repetition;
  summary.seed = prepared.params.seed;
  summary.finishes = request.finishes;
  summary.refusal = refusal;
  summary.constraint = prepared.constraint_kind;
  if (prepared.measured) {
    const MeasuredConstraint::Work work = prepared.measured->take_work();
    summary.mask_seconds = work.seconds;
    summary.masks = work.masks;
  }
  summary.calls = request.calls;
  summary.broken_calls = request.broken_calls;
  return summary;
}

}  // namespace

void report_end(const OpenRequest& request, std::optional<Refusal> refusal,
                RequestObserver* observer) {
  const RequestSummary summary = summary_of(request, refusal);
  request.metrics->reasoned(summary.usage.reasoning);
  const auto failed = [](const OpenSequence& one) {
    return one.constraint && one.constraint->failed();
  };
  if (!summary.constraint.empty())
    request.metrics->constrained(summary.constraint, summary.mask_seconds, summary.masks,
                                 std::ranges::any_of(request.sequences, failed));
  if (observer && summary.tag) observer->ended(summary);
}

}  // namespace skiff::service
