// serve/http/held.h -- bytes of whole replies that wait for their clients to read them. Private to
// the HTTP server.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>

namespace skiff {

// Streams have a bound each (HttpConfig::max_unsent); whole replies have this one together, since a
// client may ask for many large ones and read none. Thread-safe.
class HeldReplies {
 public:
  using Clock = std::chrono::steady_clock;
  // Smaller replies are not counted: connections bound them well enough.
  static constexpr int64_t kSmall = 64 << 10;
  // One that has waited so long may be dropped for another.
  static constexpr std::chrono::seconds kPatience{10};

  explicit HeldReplies(int64_t most) : most_(most) {}

  // Counts a reply until release(). If there is no room, replies that have waited longer than
  // kPatience make some, longest first: their `drop` is called. Nothing if that is not enough.
  std::optional<uint64_t> hold(int64_t bytes, std::function<void()> drop,
                               Clock::time_point now = Clock::now());
  // A second release of one ticket does nothing.
  void release(uint64_t ticket);
  int64_t bytes() const;

 private:
  struct Held {
    uint64_t ticket;
    int64_t bytes;
    Clock::time_point since;
    std::function<void()> drop;
  };
  // With mutex_ held: those to be dropped so that `bytes` fit; nothing if they cannot.
  std::optional<std::list<Held>> make_room(int64_t bytes, Clock::time_point now);

  const int64_t most_;
  mutable std::mutex mutex_;
  std::list<Held> held_;  // longest first; guarded by mutex_, as are the rest
  int64_t bytes_ = 0;
  uint64_t tickets_ = 0;
};

}  // namespace skiff
