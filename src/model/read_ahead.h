// model/read_ahead.h -- threads that do jobs ahead of one who takes them in order.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skiff {

// next() and give_back() are called by one thread.
class ReadAhead {
 public:
  // Does jobs 0 .. jobs - 1 by calling `work` on `threads` threads, several at a time and in no
  // certain order, but none before job - window was given back.
  ReadAhead(size_t jobs, int threads, size_t window, std::function<void(size_t job)> work);
  ~ReadAhead();  // waits for jobs that have begun
  // Returns when the next job is done. What its work has thrown is thrown here: the first failure
  // in the order of jobs, whichever thread failed first.
  void next();
  // The oldest job taken and not given back: what it has filled may be filled again.
  void give_back();

 private:
  struct Job {
    bool done = false;
    std::exception_ptr error;
  };
  void run();

  const size_t window_;
  const std::function<void(size_t job)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Job> jobs_;
  size_t begun_ = 0, returned_ = 0;
  bool stopped_ = false;
  size_t taken_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace skiff
