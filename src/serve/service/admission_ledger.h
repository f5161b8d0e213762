// serve/service/admission.h -- what waits for a place in the batch: how much, how long it may, and
// when those who are turned away should come again.
#pragma once
#include <chrono>
#include <cstdint>

#include "serve/service/drain_rate.h"

namespace skiff {

struct AdmissionLimits {
  int64_t waiting_tokens = 0;   // prompt tokens that may wait; 0: any number
  double waiting_seconds = -1;  // a request may wait so long; negative: for ever
  double request_seconds = 0;   // a request may take so long from end to end; 0: for ever
};

// The book of it. Knows no requests, only their sizes. Not thread-safe.
class Admission {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Retry-After is in [1, 60] seconds: less than a second cannot be said, and a client that is
  // asked to wait for more than a minute goes elsewhere for good.
  static constexpr int kMostRetrySeconds = 60;

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  const AdmissionLimits& limits() const { return limits_; }
  // Whether a request with `tokens` prompt tokens may join those that wait. The first to wait
  // always may, so that no size is refused for ever; the bound is then exceeded by that one.
  bool has_room(int64_t tokens) const {
    return limits_.waiting_tokens == 0 || waiting_tokens_ == 0 ||
           waiting_tokens_ + tokens <= limits_.waiting_tokens;
  }
  bool is_full() const { return !has_room(1); }

  // A request has come; it has ended, for whatever reason.
  void opened(Time now);
  void closed(Time now);
  // A sequence waits; it got its place; it was given up while it waited.
  void waits(Time now, int64_t tokens);
  void admitted(Time now, int64_t tokens);
  void gave_up(Time now, int64_t tokens);

  int64_t waiting_tokens() const { return waiting_tokens_; }
  int waiting() const { return waiting_; }
  // For Retry-After: until what waits now has drained, at the rate at which it did lately; where
  // nothing waits, until a request ends.
  int retry_seconds(Time now);

 private:
  void leave(Time now, int64_t tokens);

  const AdmissionLimits limits_;
  int64_t waiting_tokens_ = 0;
  int waiting_ = 0, open_ = 0;
  DrainRate queue_, requests_;
};

}  // namespace skiff
