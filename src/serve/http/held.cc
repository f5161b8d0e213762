#include "serve/http/held.h"

#include <utility>

namespace skiff::http {

std::optional<std::list<HeldReplies::Held>> HeldReplies::make_room(int64_t bytes,
                                                                   Clock::time_point now) {
  int64_t freed = 0;
  auto end = held_.begin();
  for (; end != held_.end() && bytes_ - freed + bytes > most_; ++end) {
    if (now - end->since < kPatience) break;
    freed += end->bytes;
  }
  if (bytes_ - freed + bytes > most_) return std::nullopt;
  std::list<Held> dropped;
  dropped.splice(dropped.begin(), held_, held_.begin(), end);
  bytes_ -= freed;
  return dropped;
}

std::optional<uint64_t> HeldReplies::hold(int64_t bytes, std::function<void()> drop,
                                          Clock::time_point now) {
  if (bytes <= kSmall) return 0;
  std::list<Held> dropped;
  uint64_t ticket = 0;
  {
    std::lock_guard lock(mutex_);
    auto room = make_room(bytes, now);
    if (!room) return std::nullopt;
    dropped = std::move(*room);
    ticket = ++tickets_;
    held_.push_back({ticket, bytes, now, std::move(drop)});
    bytes_ += bytes;
  }
  for (const Held& one : dropped) one.drop();
  return ticket;
}

void HeldReplies::release(uint64_t ticket) {
  if (ticket == 0) return;
  std::lock_guard lock(mutex_);
  for (auto it = held_.begin(); it != held_.end(); ++it) {
    if (it->ticket != ticket) continue;
    bytes_ -= it->bytes;
    held_.erase(it);
    return;
  }
}

int64_t HeldReplies::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace skiff::http
