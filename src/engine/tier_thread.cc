#include "engine/tier_thread.h"

#include <chrono>
#include <utility>

namespace skiff {

TierThread::TierThread(std::unique_ptr<BlockStore> store, Slots slots, Queue<Command>& inbox)
    : store_(std::move(store)),
      slots_(std::move(slots)),
      inbox_(inbox),
      thread_([this] { run(); }) {}

TierThread::~TierThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TierThread::start(TierJob job) {
  {
    std::lock_guard lock(mutex_);
    (job.kind == TierJob::Kind::kRead ? reads_ : writes_).push_back(std::move(job));
  }
  changed_.notify_one();
}

void TierThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !reads_.empty() || !writes_.empty(); });
    std::deque<TierJob>& jobs = reads_.empty() ? writes_ : reads_;
    if (jobs.empty()) return;
    const TierJob job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    const bool ok = carry_out(job);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    inbox_.push(TierDone{job.id, ok, took.count()});
    lock.lock();
  }
}

bool TierThread::carry_out(const TierJob& job) {
  const std::span<std::byte> slot = slots_(job.slot);
  return job.kind == TierJob::Kind::kRead ? store_->read(job.record, job.key, job.tokens, slot)
                                          : store_->write(job.record, job.key, job.tokens, slot);
}

}  // namespace skiff
