// base/queue.h -- passes values from one thread to another.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace skiff {

// An unbounded queue for many producers and many consumers. Bounds belong to admission, which can
// refuse a request with an answer.
template <class T>
class Queue {
 public:
  void push(T value) {
    {
      std::lock_guard lock(mutex_);
      values_.push_back(std::move(value));
    }
    changed_.notify_one();
  }
  // Closes the queue: no more values will come, and waiting consumers wake.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  // Blocks for the next value; returns nothing once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  // Returns all values that are there now. With `wait`, blocks until there is one or the queue is
  // closed.
  std::vector<T> drain(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return closed_ || !values_.empty(); });
    return take_all();
  }
  // Blocks until there is a value, the queue is closed or it is `until`; returns all values that
  // are there then.
  std::vector<T> drain_until(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return closed_ || !values_.empty(); });
    return take_all();
  }
  // Blocks until there is a value even if the queue is closed, for a caller that awaits an answer.
  std::vector<T> drain_some() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !values_.empty(); });
    return take_all();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::vector<T> take_all() {  // requires mutex_
    std::vector<T> all(std::make_move_iterator(values_.begin()),
                       std::make_move_iterator(values_.end()));
    values_.clear();
    return all;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace skiff
