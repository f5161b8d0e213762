// apps/signal_guard.h -- handles the signals of a server and ends it even if something hangs.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace skiff::apps {

// Owns a thread that receives every signal, so the second SIGTERM or SIGINT takes effect whatever
// the other threads wait for: it calls `cut_off` and ends the process kHurry later with
// `exit_code`, unless the guard has been destroyed by then. A third one ends the process at once.
// No destructor runs in these cases, because one of them may be what hangs. Call catch_signals()
// first.
class SignalGuard {
 public:
  static constexpr std::chrono::milliseconds kHurry{1200};

  // `cut_off` must not wait for anything, not even for a mutex.
  SignalGuard(int exit_code, std::function<void()> cut_off);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;

  // Blocks until a SIGHUP, or the first SIGTERM or SIGINT, and returns it. After the latter SIGHUP
  // is ignored.
  int next();
  // Ends the process with `exit_code` after this time, unless the guard has been destroyed by then.
  void end_within(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void take(int signal);
  [[noreturn]] void end_now() const;

  const int exit_code_;
  const std::function<void()> cut_off_;
  std::atomic<bool> over_{false};
  std::atomic<Clock::time_point> end_{Clock::time_point::max()};
  int endings_ = 0;  // SIGTERM and SIGINT so far; used by the thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> signals_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace skiff::apps
