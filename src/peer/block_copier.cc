#include "peer/block_copier.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace skiff::peer {

BlockCopier::BlockCopier(Config config) : config_(std::move(config)) {
  SKIFF_CHECK(config_.threads > 0);
  for (int i = 0; i < config_.threads; ++i) threads_.emplace_back([this] { work(); });
}

BlockCopier::~BlockCopier() {
  jobs_.close();
  for (std::thread& thread : threads_) thread.join();
}

void BlockCopier::work() {
  pthread_setname_np(pthread_self(), "block-copier");
  std::vector<std::byte> own;
  while (const auto job = jobs_.pop()) {
    std::span<std::byte> to = job->to;
    if (to.empty()) {
      own.resize(job->from.size());
      to = own;
    }
    const bool right = copy_and_sum(job->from, to) == job->sum;
    if (right && job->to.empty()) config_.put(job->host_block, to);
    config_.answer(*job, right);
  }
}

}  // namespace skiff::peer
