#include "ops/cpu/threadpool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace skiff::cpu {
namespace {

constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

// Long enough to bridge the gap between two operations of a step, short enough that an idle
// server uses no processor time.
constexpr auto kSpin = std::chrono::microseconds(40);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns true if `ready` became true while spinning.
template <class F>
bool spin_until(F ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(static_cast<size_t>(std::max(threads, 1))) {
  SKIFF_CHECK(threads >= 1, "{} threads", threads);
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();  // ends the threads made so far, which otherwise could not be joined
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_ = true;
  ++wake_;
  wake_.notify_all();
}

int64_t ThreadPool::cut(int64_t tasks) {
  const int64_t count = std::min(std::ssize(shares_), tasks);
  for (int64_t i = 0; i < count; ++i) {
    shares_[static_cast<size_t>(i)].next = tasks * i / count;
    shares_[static_cast<size_t>(i)].end = tasks * (i + 1) / count;
  }
  return count;
}

bool ThreadPool::has_work() const {
  const uint64_t s = state_.load();
  return stop_.load() || (s & kTaskMask) < (s >> kTaskBits & kTaskMask);
}

int64_t ThreadPool::claim_and_run(int thread) {
  int64_t ran = 0;
  uint64_t s = state_.load();
  for (;;) {
    const uint64_t next = s & kTaskMask;
    if (next >= (s >> kTaskBits & kTaskMask)) return ran;
    if (!state_.compare_exchange_weak(s, s + 1)) continue;
    try {
      call_.load(std::memory_order_relaxed)(
          context_.load(std::memory_order_relaxed),
          first_.load(std::memory_order_relaxed) + static_cast<int64_t>(next), thread);
    } catch (...) {
      std::lock_guard lock(thrown_mutex_);
      if (!thrown_) thrown_ = std::current_exception();
    }
    ++ran;
    // Reported at once: the caller may be waiting for this very task.
    const auto tasks = static_cast<uint32_t>(s >> kTaskBits & kTaskMask);
    if (done_.fetch_add(1) + 1 == tasks && caller_sleeps_.load()) done_.notify_one();
    s = state_.load();
  }
}

// sleepers_ is raised before state_ is read for the last time, and run() changes state_ before it
// reads sleepers_, so at least one of the two sees the other's write.
void ThreadPool::sleep_until_work() {
  ++sleepers_;
  const uint32_t before = wake_.load();
  if (!has_work()) wake_.wait(before);
  --sleepers_;
}

void ThreadPool::work(int thread) {
  while (!stop_) {
    claim_and_run(thread);
    if (!spin_until([this] { return has_work(); })) sleep_until_work();
  }
}

void ThreadPool::run(int64_t tasks, Call call, const void* context) {
  SKIFF_CHECK(tasks >= 0, "{} tasks", tasks);
  void* ctx = const_cast<void*>(context);
  if (tasks <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < tasks; ++i) call(ctx, i, 0);
    return;
  }
  call_.store(call, std::memory_order_relaxed);
  context_.store(ctx, std::memory_order_relaxed);
  constexpr auto kMaxRound = static_cast<int64_t>(kTaskMask);
  for (int64_t first = 0; first < tasks; first += kMaxRound) {
    first_.store(first, std::memory_order_relaxed);
    run_round(std::min(kMaxRound, tasks - first));
  }
}

void ThreadPool::run_round(int64_t tasks) {
  done_.store(0);
  const uint64_t round = (state_.load() >> 2 * kTaskBits) + 1;
  state_.store(round << 2 * kTaskBits | static_cast<uint64_t>(tasks) << kTaskBits);
  if (sleepers_.load() > 0) {
    ++wake_;
    wake_.notify_all();
  }
  claim_and_run(0);
  const auto all = static_cast<uint32_t>(tasks);
  if (spin_until([&] { return done_.load() == all; })) return finish_round();
  caller_sleeps_ = true;
  for (uint32_t d = done_.load(); d != all; d = done_.load()) done_.wait(d);
  caller_sleeps_ = false;
  finish_round();
}

void ThreadPool::finish_round() {
  std::lock_guard lock(thrown_mutex_);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

}  // namespace skiff::cpu
