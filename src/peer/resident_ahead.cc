#include "peer/resident_ahead.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>

// Headers of older systems lack this one of Linux 5.14.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace skiff::peer {

ResidentAhead::ResidentAhead(std::span<std::byte> memory, size_t window)
    : memory_(memory), window_(window), wanted_(std::min(window, memory.size())) {
  thread_ = std::thread([this] { work(); });
}

ResidentAhead::~ResidentAhead() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ResidentAhead::in_use(size_t bytes) {
  const size_t wanted = std::min(bytes + window_, memory_.size());
  {
    std::lock_guard lock(mutex_);
    if (wanted <= wanted_) return;
    wanted_ = wanted;
  }
  changed_.notify_all();
}

// In small portions, because threads that map memory wait for each. A system that cannot do it
// clears pages as they are used.
void ResidentAhead::work() {
  constexpr size_t kPortion = 1 << 20;
  pthread_setname_np(pthread_self(), "shelf-pages");
  size_t done = 0;
  for (std::unique_lock lock(mutex_); done < memory_.size();) {
    changed_.wait(lock, [&] { return stop_ || done < wanted_; });
    if (stop_) return;
    const auto portion = memory_.subspan(done, std::min(kPortion, wanted_ - done));
    lock.unlock();
    if (madvise(portion.data(), portion.size(), MADV_POPULATE_WRITE) != 0) return;
    done += portion.size();
    lock.lock();
  }
}

}  // namespace skiff::peer
