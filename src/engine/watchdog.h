// engine/watchdog.h -- detects that the engine completes no steps while work waits.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skiff::engine {

// The progress of the watched engine; the fields are those of EngineStats.
struct Pulse {
  uint64_t steps = 0;
  double seconds_since_progress = 0;  // 0 while there is no work
};

// Time without progress, measured by polling. A process that is stopped and continued (SIGSTOP, a
// machine that sleeps) does not poll meanwhile: a gap between two polls counts as no more than
// `longest_gap` seconds, so that waking up is not taken for hanging.
class StallClock {
 public:
  explicit StallClock(double longest_gap) : longest_gap_(longest_gap) {}
  // Returns the seconds without progress; `now` is in seconds of any monotonic clock.
  double look(const Pulse& pulse, double now);

 private:
  double longest_gap_;
  double last_ = 0, stalled_ = 0;
  uint64_t steps_ = 0;
  bool looked_ = false;
};

// A thread that polls the engine, or every replica of it. When one of them has made no progress for
// `limit` seconds, the thread calls stalled(true) and report(seconds) and, after a grace period of
// at most 5 s, end(), which is not expected to return. If the engine moves again before that, it
// calls stalled(false).
class Watchdog {
 public:
  struct Hooks {
    std::function<std::vector<Pulse>()> pulses;  // one for each engine, always
    std::function<void(bool)> stalled;
    std::function<void(double seconds)> report;
    std::function<void()> end;
  };
  // Requires limit > 0. Whatever the hooks use must outlive the watchdog.
  Watchdog(double limit, Hooks hooks);
  ~Watchdog();

 private:
  void run();
  bool sleep();

  const double limit_, poll_, grace_;
  const Hooks hooks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace skiff::engine
