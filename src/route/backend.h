// route/backend.h -- one backend as the router sees it: who it is, how it is, what it has to do.
// Everything here is used on the router's thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "route/instance.h"
#include "route/policy.h"
#include "route/prefix_cache.h"
#include "route/wire.h"

namespace skiff::route {

using Clock = std::chrono::steady_clock;

struct HealthSettings {
  double interval = 5;  // seconds from one probe to the next
  double timeout = 5;   // seconds that a probe may take
  int failures = 3;     // failed probes in a row, after which a backend gets no requests
  int successes = 2;    // successful ones in a row, after which it gets them again
};

// Tells from probes whether a backend can be used. The first success counts at once. Load and
// prefixes are not touched by it: a backend that comes back still has the requests that it had.
class Health {
 public:
  enum class State { kUnknown, kUp, kDown };
  // Counts a probe. Returns true if the state has changed.
  bool probed(bool good, const HealthSettings& settings);
  // Counts a request for which no connection could be made, like a failed probe.
  bool unreachable(const HealthSettings& settings) { return probed(false, settings); }
  bool up() const { return state_ == State::kUp; }
  State state() const { return state_; }

 private:
  State state_ = State::kUnknown;
  int failures_ = 0, successes_ = 0;
};

// A connection that waits for a request.
struct IdleConnection {
  Wire wire;
  Clock::time_point since;
};

struct Backend {
  Backend(Instance instance, bool fixed, size_t max_blocks, Clock::time_point now)
      : url(instance.url()),
        instance(std::move(instance)),
        fixed(fixed),
        seen(now),
        prefixes(max_blocks) {}

  bool usable() const { return health.up() && !instance.paused; }
  // Notes that a request was answered 503, with this Retry-After, which may be empty or no number.
  void refused(std::string_view retry_after, Clock::time_point now);
  // Whether it is likely to answer 503 again. It still serves where all others do, too.
  bool refuses(Clock::time_point now) const { return now < refuses_until; }

  const std::string url;
  Instance instance;
  const bool fixed;        // named by --backends: it is never forgotten
  Clock::time_point seen;  // the last registration
  Health health;
  Load load;
  PrefixCache prefixes;
  std::list<IdleConnection> idle;  // most recently used first
  // The same instance at the port of its metrics, with the connection that is kept to it; null
  // before the first question there.
  std::shared_ptr<Backend> metrics_place;
  bool probing = false;
  // The last probe got an answer, be it a refusal: whoever drains, or is paused, still finishes
  // what it has begun.
  bool answers = true;
  Clock::time_point refuses_until;
  uint64_t requests = 0, failures = 0;  // sent to it, and those among them without a whole answer
};

// Counts a request in a backend's load, from when the backend is chosen until this is destroyed.
class LoadShare {
 public:
  LoadShare(std::shared_ptr<Backend> backend, int64_t tokens);
  ~LoadShare();
  LoadShare(const LoadShare&) = delete;
  LoadShare& operator=(const LoadShare&) = delete;
  // Takes the prompt out of Load::waiting, because it has been computed: the answer begins.
  void answered();

 private:
  const std::shared_ptr<Backend> backend_;
  const int64_t tokens_;
  bool waiting_ = true;
};

}  // namespace skiff::route
