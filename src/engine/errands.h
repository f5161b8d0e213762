// engine/errands.h -- what other threads ask of the engine's thread, to be done while it is at
// rest: no sequence runs or waits, no step is in flight, and no answer of a lower tier is awaited.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

namespace skiff::engine {

// Thread-safe. Sequences that are submitted meanwhile wait until the work is done.
class Errands {
 public:
  // The future is ready when the engine's thread has done `work`, and holds what that has thrown,
  // or std::future_errc::broken_promise where the engine has ended before. The caller wakes the
  // engine with a command.
  std::future<void> add(std::function<void()> work);
  bool any() const { return count_ > 0; }
  // Does all the work. Only the engine's thread calls it, when nothing runs or waits.
  void carry_out();
  // Drops all work, now and later, because the engine has ended.
  void close();

 private:
  std::mutex mutex_;
  std::vector<std::packaged_task<void()>> tasks_;  // guarded by mutex_
  bool closed_ = false;                            // guarded by mutex_
  std::atomic<int> count_{0};
};

}  // namespace skiff::engine
