// capi/ending.h -- a wait for work that may never come to its end: the join of an engine's thread
// whose device is lost.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace skiff::capi {

// Thread-safe.
class Ending {
 public:
  enum class Met { kOver, kGivenUp, kTimeUp };
  // Runs `work` in a thread of its own and waits until it has returned, give_up() is called, or
  // `limit` has passed. Where it has not returned, the thread goes on by itself, and what `work`
  // holds lives as long as it does; `work` must not throw.
  Met run(std::function<void()> work, std::chrono::duration<double> limit);
  // The work will not return. A run() that begins later gives up at once.
  void give_up();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false, given_up = false;  // guarded by mutex
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace skiff::capi
