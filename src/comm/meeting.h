// comm/meeting.h -- a place where the threads of a group wait for each other, and which any of them
// may end.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace skiff::comm {

// A barrier of `size` threads. What a thread wrote before it arrives is seen by all that leave.
// Where there is a processor for each thread, one that waits spins briefly before it sleeps.
class Meeting {
 public:
  explicit Meeting(int size);
  Meeting(const Meeting&) = delete;

  // Returns when all threads of the group have called it as often as this one. Throws GroupEnded
  // once the meeting has been ended; what others may still read must then not be touched.
  void arrive();
  // Wakes all that wait. Only the first call has an effect. May be called from any thread.
  void end(const std::string& why);

 private:
  bool is_over(uint32_t round) const;
  void await_end_of(uint32_t round);
  [[noreturn]] void leave();

  const int size_;
  const bool spins_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_
};

}  // namespace skiff::comm
