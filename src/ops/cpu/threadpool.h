// ops/cpu/threadpool.h -- threads that run numbered tasks together and sleep when idle.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace skiff::cpu {

// Tasks are claimed one by one, so which thread runs which task varies from run to run: a task
// must not depend on it, except for the scratch memory that it uses. Driven by one thread at a
// time, which takes part as thread 0.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // at least 1, counting the caller
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(task, thread) once for each task in [0, tasks), thread in [0, threads()); returns when
  // all are done. Tasks must not call parallel_for. An exception of a task, for example because
  // memory ran out, is thrown here once the round has ended; the other tasks may or may not have
  // run.
  template <class F>
  void parallel_for(int64_t tasks, F&& f) {
    run(
        tasks,
        [](void* context, int64_t task, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(context))(task, thread);
        },
        &f);
  }

  // The same, but a thread takes consecutive tasks: its share of them, then, one by one, what is
  // left of other shares. For tasks that read one stretch of memory after the other.
  template <class F>
  void parallel_stretches(int64_t tasks, F&& f) {
    const int64_t count = cut(tasks);
    parallel_for(count, [&](int64_t first, int thread) {
      for (int64_t i = first; i < first + count; ++i) {
        Share& share = shares_[static_cast<size_t>(i % count)];
        for (int64_t task; (task = share.next++) < share.end;) f(task, thread);
      }
    });
  }

 private:
  // Consecutive tasks, of which those from `next` on are left.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  // Cuts the tasks into as many shares_ as it returns.
  int64_t cut(int64_t tasks);

  using Call = void (*)(void* context, int64_t task, int thread);

  void run(int64_t tasks, Call call, const void* context);
  void run_round(int64_t tasks);
  void work(int thread);
  void stop();
  int64_t claim_and_run(int thread);
  void finish_round();
  bool has_work() const;
  void sleep_until_work();

  // The whole state of claiming in one word: round << 40 | tasks << 20 | next. A claim is a
  // compare-and-swap on all of it, so a thread that slept through a round cannot claim from the
  // next one by mistake; call_, context_ and first_ are read after a claim, which keeps the round
  // open.
  std::atomic<uint64_t> state_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> first_{0};  // number of the round's first task
  std::atomic<uint32_t> done_{0};  // tasks of this round that have returned
  std::atomic<bool> caller_sleeps_{false};
  std::mutex thrown_mutex_;
  std::exception_ptr thrown_;  // guarded by thrown_mutex_: thrown by the first task of this round
                               // that failed

  std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<Share> shares_;  // one for each thread
  std::vector<std::jthread> workers_;
};

}  // namespace skiff::cpu
