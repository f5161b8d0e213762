// peer/block_copier.h -- threads that copy blocks out of memory which another process writes to.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "peer/block_sum.h"
#include "peer/shared_memory.h"

namespace skiff::peer {

// What is judged is the copy: whether its sum is right is said by the answer. So a block whose
// place gets another one while it is read, because the other side has given this one up, is found
// like one that was damaged on its way. Thread-safe.
class BlockCopier {
 public:
  struct Job {
    uint64_t id = 0;
    std::shared_ptr<const Mapping> memory;  // what `from` lies in
    std::span<const std::byte> from;
    int host_block = 0;
    std::span<std::byte> to;  // as large as `from`, or empty: Config::put takes the copy
    Sum sum;                  // what the other side says that the bytes have
    std::chrono::steady_clock::time_point began{};
  };
  struct Config {
    int threads = 1;                                                            // at least 1
    std::function<void(int host_block, std::span<const std::byte> bytes)> put;  // see BlockClient
    // Takes the answer to each job that was started.
    std::function<void(const Job& job, bool right)> answer;
  };
  explicit BlockCopier(Config config);
  ~BlockCopier();  // carries out the jobs that were started
  void start(Job job) { jobs_.push(std::move(job)); }

 private:
  void work();

  const Config config_;
  Queue<Job> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace skiff::peer
