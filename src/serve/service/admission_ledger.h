// serve/service/admission_ledger.h -- accounting of what waits for a place in the batch: how much,
// for how long it may, and after what time refused clients should retry.
#pragma once
#include <chrono>
#include <cstdint>

#include "serve/service/drain_rate.h"

namespace skiff::service {

struct AdmissionLimits {
  int64_t waiting_tokens = 0;   // prompt tokens that may wait at a time; 0: any number
  double waiting_seconds = -1;  // longest wait of a request; negative: unbounded
  double request_seconds = 0;   // longest time of a request from end to end; 0: unbounded
};

// Counts sizes only and knows no requests. Not thread-safe.
class AdmissionLedger {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Bound on Retry-After, in seconds; the least is 1, because it is a whole number. A client that
  // is asked to wait for more than a minute gives up.
  static constexpr int kMaxRetrySeconds = 60;

  explicit AdmissionLedger(const AdmissionLimits& limits) : limits_(limits) {}

  const AdmissionLimits& limits() const { return limits_; }
  // Returns whether a request with `tokens` prompt tokens may join those that wait. The first one
  // always may, even beyond the bound, so that no size is always refused.
  bool has_room(int64_t tokens) const {
    return limits_.waiting_tokens == 0 || waiting_tokens_ == 0 ||
           waiting_tokens_ + tokens <= limits_.waiting_tokens;
  }
  bool is_full() const { return !has_room(1); }

  // opened() counts a request that has arrived, closed() one that has ended for any reason.
  void opened(Time now);
  void closed(Time now);
  // waits() counts a sequence that begins to wait, admitted() one that enters the batch, and
  // gave_up() one that is dropped while it waits.
  void waits(Time now, int64_t tokens);
  void admitted(Time now, int64_t tokens);
  void gave_up(Time now, int64_t tokens);

  int64_t waiting_tokens() const { return waiting_tokens_; }
  int waiting() const { return waiting_; }
  // Value of Retry-After: the time until the queue has drained at its recent rate or, if nothing
  // waits, until a request ends.
  int retry_seconds(Time now);

 private:
  void leave(Time now, int64_t tokens);

  const AdmissionLimits limits_;
  int64_t waiting_tokens_ = 0;
  int waiting_ = 0, open_ = 0;
  DrainRate queue_, requests_;
};

}  // namespace skiff::service
