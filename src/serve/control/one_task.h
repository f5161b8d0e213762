// serve/control/one_task.h -- a thread for work that takes long, one piece at a time.
#pragma once
#include <functional>
#include <mutex>
#include <thread>

namespace skiff::control {

// Thread-safe.
class OneTask {
 public:
  OneTask() = default;
  ~OneTask();  // waits for the work under way
  OneTask(const OneTask&) = delete;
  // Begins the work on a thread of its own, or returns false while other work is under way. What
  // the work returns is called when other work may begin, so that whoever hears of it may begin.
  bool begin(std::function<std::function<void()>()> work);

 private:
  std::mutex mutex_;
  bool running_ = false;  // guarded by mutex_
  std::thread thread_;    // guarded by mutex_
};

}  // namespace skiff::control
