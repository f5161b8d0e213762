#include "serve/journal/outlet.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>

namespace skiff::journal {

using Clock = std::chrono::steady_clock;

Outlet::Outlet(const Options& options, Write write)
    : options_(options), write_(std::move(write)), thread_([this] { run(); }) {}

Outlet::~Outlet() { stop(); }

void Outlet::put(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= options_.max_texts) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(text));
    if (waiting_.size() > 1 && waiting_.size() < options_.max_batch) return;
  }
  changed_.notify_one();
}

void Outlet::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) end_ = Clock::now() + options_.last;
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// Empty once there is nothing more to write.
std::vector<std::string> Outlet::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
  changed_.wait_for(lock, options_.gather,
                    [this] { return stopped_ || waiting_.size() >= options_.max_batch; });
  if (Clock::now() > end_) {
    dropped_ += waiting_.size();
    waiting_.clear();
  }
  const size_t count = std::min(waiting_.size(), options_.max_batch);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<std::string> batch(std::move_iterator(waiting_.begin()), std::move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

void Outlet::run() {
  pthread_setname_np(pthread_self(), options_.thread);
  for (;;) {
    const std::vector<std::string> batch = next();
    if (batch.empty()) return;
    const size_t lost = std::min(write_(batch), batch.size());
    dropped_ += lost;
    written_ += batch.size() - lost;
  }
}

}  // namespace skiff::journal
