// peer/resident_ahead.h -- makes memory resident a little before it is used for the first time.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>

namespace skiff::peer {

// The system clears each page when it is first written to, at about 1 GB/s for a thread, which is a
// quarter of what a copy takes. So a thread of its own touches the memory, from front to back, up
// to `window` bytes beyond what is in use. Thread-safe.
class ResidentAhead {
 public:
  // The memory must outlive this object. Its contents are not changed.
  ResidentAhead(std::span<std::byte> memory, size_t window);
  ~ResidentAhead();
  void in_use(size_t bytes);  // the memory is in use up to there

 private:
  void work();

  const std::span<std::byte> memory_;
  const size_t window_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  size_t wanted_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace skiff::peer
