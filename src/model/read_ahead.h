// model/read_ahead.h -- runs jobs on threads, ahead of a consumer that takes the results in order.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skiff::model {

// One thread, the consumer, calls next() and give_back().
class ReadAhead {
 public:
  // Calls work(job) for jobs 0 to jobs - 1 on `threads` threads, in any order; a job begins only
  // after the job `window` places before it was given back.
  ReadAhead(size_t jobs, int threads, size_t window, std::function<void(size_t job)> work);
  ~ReadAhead();  // waits for jobs that have begun
  // Returns when the next job is done, and throws what its work has thrown: failures come in the
  // order of jobs.
  void next();
  // Gives the oldest job taken back: what its work has filled may be filled again.
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
  // mutex_ guards these.
  std::vector<Job> jobs_;
  size_t begun_ = 0, returned_ = 0;
  bool stopped_ = false;
  size_t taken_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace skiff::model
