#include "model/read_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace skiff::model {

ReadAhead::ReadAhead(size_t jobs, int threads, size_t window, std::function<void(size_t)> work)
    : window_(window), work_(std::move(work)), jobs_(jobs) {
  SKIFF_CHECK(threads > 0 && window > 0);
  const size_t count = std::min({static_cast<size_t>(threads), window, jobs});
  try {
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // one thread does all jobs, too
  }
}

ReadAhead::~ReadAhead() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void ReadAhead::run() {
  for (;;) {
    size_t job = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return stopped_ || begun_ == jobs_.size() || begun_ < returned_ + window_;
      });
      if (stopped_ || begun_ == jobs_.size()) return;
      job = begun_++;
    }
    std::exception_ptr error;
    try {
      work_(job);
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    jobs_[job] = {.done = true, .error = error};
    changed_.notify_all();
  }
}

void ReadAhead::next() {
  std::unique_lock lock(mutex_);
  const size_t job = taken_++;
  SKIFF_CHECK(job < jobs_.size(), "job {} of {}", job, jobs_.size());
  changed_.wait(lock, [&] { return jobs_[job].done; });
  if (jobs_[job].error) std::rethrow_exception(jobs_[job].error);
}

void ReadAhead::give_back() {
  std::lock_guard lock(mutex_);
  SKIFF_CHECK(returned_ < taken_);
  ++returned_;
  changed_.notify_all();
}

}  // namespace skiff::model
