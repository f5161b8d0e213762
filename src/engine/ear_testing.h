// engine/ear_testing.h -- for tests: hears the events of an Llm and waits for ends.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/llm.h"
#include "engine/random_case_testing.h"

namespace skiff::engine {

// Collects events from the threads of engines and waits for the ends of sequences.
class Ear {
 public:
  Llm::Sink sink() {
    return [this](const std::vector<Event>& events) {
      std::lock_guard lock(mutex_);
      listener_.hear(events);
      for (const Event& e : events) ended_ += e.finish != Finish::kNone;
      changed_.notify_all();
    };
  }
  bool wait_for_ends(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= n; });
  }
  bool wait_for_tokens(SeqId id) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      return listener_.knows(id) && !listener_.of(id).tokens.empty();
    });
  }
  Heard of(SeqId id) {
    std::lock_guard lock(mutex_);
    return listener_.of(id);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Listener listener_;
  int ended_ = 0;
};

}  // namespace skiff::engine
