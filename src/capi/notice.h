// capi/notice.h -- a flag that threads, poll and asyncio can wait for: an eventfd.
#pragma once

namespace skiff::capi {

// Thread-safe.
class Notice {
 public:
  enum class Woken { kSet, kTimeUp, kInterrupted };

  Notice();  // throws std::system_error if there is no descriptor left
  ~Notice();
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  int fd() const { return fd_; }
  void set() const;
  void clear() const;
  // Waits at most `timeout_ms`, -1: without end, until it is set, which it stays.
  Woken wait(int timeout_ms) const;

 private:
  const int fd_;
};

}  // namespace skiff::capi
