// serve/service/event_queue.h -- the queue of events from the engine to the output thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "message/request.h"

namespace skiff::service {

// The producers are step loops, which must never wait; there is one consumer. If the consumer falls
// behind, the events of a sequence are merged into one that has all tokens in order: a late reader
// gets larger pieces, and the queue holds at most `merge_above` events plus one for each sequence
// under way. Thread-safe.
class EventQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit EventQueue(size_t merge_above = 4096) : merge_above_(merge_above) {}

  // Never waits for the consumer. Events of one sequence stay in order; events of different
  // sequences may be reordered.
  void push(std::vector<Event> events);
  // Makes a wait under way return.
  void wake();
  // No more events will come.
  void close();
  bool closed() const;
  size_t size() const;
  // Waits for events and returns all of them; none at `end`, after wake(), or when the queue is
  // closed and empty.
  std::vector<Event> wait_until(Time end);

 private:
  void put(Event event);  // with mutex_ held, as are the members below

  const size_t merge_above_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> pending_;
  std::unordered_map<SeqId, size_t> index_;  // into pending_; filled only while merging
  bool merging_ = false, woken_ = false, closed_ = false;
};

}  // namespace skiff::service
