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
  // What run() would answer now: its work may have returned since. kOver before any run().
  Met met() const;
  // The work will not return. A run() that begins later gives up at once.
  void give_up();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool began = false, over = false, given_up = false;  // guarded by mutex
    Met met() const {
      if (!began || over) return Met::kOver;
      return given_up ? Met::kGivenUp : Met::kTimeUp;
    }
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace skiff::capi
