#include "capi/ending.h"

#include <thread>
#include <utility>

namespace skiff::capi {

Ending::Met Ending::run(std::function<void()> work, std::chrono::duration<double> limit) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->began = true;
  }
  std::thread thread([state = state_, work = std::move(work)] {
    work();
    const std::lock_guard lock(state->mutex);
    state->over = true;
    state->changed.notify_all();
  });
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [&] { return state_->over || state_->given_up; });
  const Met met = state_->met();
  lock.unlock();
  if (met == Met::kOver)
    thread.join();
  else
    thread.detach();
  return met;
}

Ending::Met Ending::met() const {
  const std::lock_guard lock(state_->mutex);
  return state_->met();
}

void Ending::give_up() {
  const std::lock_guard lock(state_->mutex);
  state_->given_up = true;
  state_->changed.notify_all();
}

}  // namespace skiff::capi
