// serve/http/held.h -- bytes of whole replies that clients have not read yet. Private to
// the HTTP server.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>

namespace skiff::http {

// Each stream has its own bound (HttpConfig::max_unsent); whole replies share this one, because a
// client may request many large replies and read none. Thread-safe.
class HeldReplies {
 public:
  using Clock = std::chrono::steady_clock;
  // Smaller replies are not counted: the number of connections bounds them well enough.
  static constexpr int64_t kSmall = 64 << 10;
  // A reply that has waited this long may be dropped for another.
  static constexpr std::chrono::seconds kPatience{10};

  explicit HeldReplies(int64_t most) : most_(most) {}

  // Counts a reply until release(). If there is no room, replies that have waited longer than
  // kPatience are dropped, longest first: their `drop` is called. Nothing if that does not make
  // enough room.
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
  // Returns the replies that must be dropped for `bytes` to fit; nothing if they cannot fit. With
  // mutex_ held.
  std::optional<std::list<Held>> make_room(int64_t bytes, Clock::time_point now);

  const int64_t most_;
  mutable std::mutex mutex_;
  std::list<Held> held_;  // longest first; guarded by mutex_, as are the rest
  int64_t bytes_ = 0;
  uint64_t tickets_ = 0;
};

}  // namespace skiff::http
