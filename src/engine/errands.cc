#include "engine/errands.h"

#include <utility>

namespace skiff::engine {

std::future<void> Errands::add(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  const std::lock_guard lock(mutex_);
  if (closed_) return done;  // the task is dropped, which breaks its promise
  tasks_.push_back(std::move(task));
  ++count_;
  return done;
}

void Errands::carry_out() {
  std::vector<std::packaged_task<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) {
    task();
    --count_;
  }
}

void Errands::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  count_ -= static_cast<int>(tasks_.size());
  tasks_.clear();
}

}  // namespace skiff::engine
