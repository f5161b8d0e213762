#include "serve/control/one_task.h"

#include <pthread.h>

#include <utility>

namespace skiff::control {

OneTask::~OneTask() {
  if (thread_.joinable()) thread_.join();
}

bool OneTask::begin(std::function<std::function<void()>()> work) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(running_, true)) return false;
  if (thread_.joinable()) thread_.join();  // the last one has only to tell
  thread_ = std::thread([this, work = std::move(work)]() mutable {
    pthread_setname_np(pthread_self(), "upkeep");
    const std::function<void()> tell = work();
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
    }
    tell();
  });
  return true;
}

}  // namespace skiff::control
