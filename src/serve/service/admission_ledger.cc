#include "serve/service/admission_ledger.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace skiff::service {

void AdmissionLedger::opened(Time now) {
  ++open_;
  requests_.set_busy(now, true);
}

void AdmissionLedger::closed(Time now) {
  SKIFF_CHECK(--open_ >= 0);
  requests_.drained(now, 1);
  requests_.set_busy(now, open_ > 0);
}

void AdmissionLedger::waits(Time now, int64_t tokens) {
  ++waiting_;
  waiting_tokens_ += tokens;
  queue_.set_busy(now, true);
}

void AdmissionLedger::admitted(Time now, int64_t tokens) {
  queue_.drained(now, static_cast<double>(tokens));
  leave(now, tokens);
}

void AdmissionLedger::gave_up(Time now, int64_t tokens) { leave(now, tokens); }

void AdmissionLedger::leave(Time now, int64_t tokens) {
  waiting_tokens_ -= tokens;
  SKIFF_CHECK(--waiting_ >= 0 && waiting_tokens_ >= 0);
  queue_.set_busy(now, waiting_ > 0);
}

int AdmissionLedger::retry_seconds(Time now) {
  const double seconds = waiting_ > 0
                             ? queue_.seconds_for(now, static_cast<double>(waiting_tokens_))
                             : requests_.seconds_for(now, 1);
  return static_cast<int>(std::ceil(std::clamp(seconds, 1.0, double{kMaxRetrySeconds})));
}

}  // namespace skiff::service
