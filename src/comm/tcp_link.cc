#include "comm/tcp_link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace skiff::comm {
namespace {

constexpr size_t kLeastRead = size_t{4} << 20;
constexpr int kBeats = 4;  // heartbeats within the time after which a peer counts as silent

// Locks the mutex unless that takes too long.
bool lock_soon(std::mutex& mutex) {
  constexpr int kMostTries = 250;
  for (int i = 0; i < kMostTries; ++i) {
    if (mutex.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TcpLink::TcpLink(int fd, std::string peer, double silence_seconds, Ended ended)
    : fd_(fd), peer_(std::move(peer)), silence_(silence_seconds), ended_(std::move(ended)) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval most{.tv_sec = static_cast<time_t>(silence_),
                     .tv_usec = static_cast<suseconds_t>(
                         (silence_ - static_cast<double>(static_cast<time_t>(silence_))) * 1e6)};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  reader_ = std::thread([this] { read(); });
  heart_ = std::thread([this] { beat(); });
}

// Closing a socket with unread bytes would take back the reason that was sent, so the peer gets a
// moment to close first.
TcpLink::~TcpLink() {
  leave();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return peer_closed_; });
  }
  shutdown(fd_, SHUT_RDWR);
  reader_.join();
  heart_.join();
  close(fd_);
}

bool TcpLink::write_all(const FrameHead& head, std::span<const std::byte> bytes) {
  HeadBytes first = write_head(head);
  std::array<iovec, 2> parts = {
      {{first.data(), first.size()}, {const_cast<std::byte*>(bytes.data()), bytes.size()}}};
  size_t at = 0;
  while (at < parts.size()) {
    msghdr message{};
    message.msg_iov = &parts[at];
    message.msg_iovlen = parts.size() - at;
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    for (auto left = static_cast<size_t>(sent); at < parts.size(); ++at) {
      const size_t taken = std::min(left, parts[at].iov_len);
      parts[at].iov_base = static_cast<char*>(parts[at].iov_base) + taken;
      parts[at].iov_len -= taken;
      left -= taken;
      if (parts[at].iov_len > 0) break;
    }
  }
  return true;
}

void TcpLink::write(const FrameHead& head, std::span<const std::byte> bytes) {
  bool sent = false;
  {
    std::lock_guard lock(writing_);
    sent = write_all(head, bytes);
  }
  if (!sent) ended_(fmt::format("{} takes no more bytes", peer_));
}

void TcpLink::send(const Call& call, std::span<const std::byte> bytes) {
  write({.kind = FrameKind::kData, .call = call, .bytes = bytes.size()}, bytes);
}

void TcpLink::send_message(std::span<const std::byte> bytes) {
  write({.kind = FrameKind::kMessage, .bytes = bytes.size()}, bytes);
}

void TcpLink::end(const std::string& why) {
  close_with(FrameKind::kEnd, why.substr(0, kMostReason));
}

void TcpLink::leave() { close_with(FrameKind::kLeave, {}); }

// A frame that is being written must be whole before the next. Where the peer does not take it,
// only the connection ends.
void TcpLink::close_with(FrameKind last, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
  }
  if (lock_soon(writing_)) {
    write_all({.kind = last, .bytes = text.size()}, std::as_bytes(std::span(text)));
    writing_.unlock();
  }
  shutdown(fd_, SHUT_WR);
  data_.close();
  messages_.close();
  changed_.notify_all();
}

void TcpLink::beat() {
  const auto pause = std::chrono::duration<double>(silence_ / kBeats);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [&] { return over_; })) {
    lock.unlock();
    // Whoever writes a frame shows that it is alive.
    if (writing_.try_lock()) {
      write_all({.kind = FrameKind::kAlive}, {});
      writing_.unlock();
    }
    lock.lock();
  }
}

void TcpLink::read() {
  pthread_setname_np(pthread_self(), "ranks");
  std::string why;
  Read read = Read::kFrame;
  while (read == Read::kFrame) read = read_frame(why);
  if (read == Read::kEnded) ended_(why);
  data_.close();
  messages_.close();
  std::lock_guard lock(mutex_);
  peer_closed_ = true;
  changed_.notify_all();
}

TcpLink::Read TcpLink::read_frame(std::string& why) {
  HeadBytes first;
  if (auto failed = read_all(first.data(), first.size())) {
    why = *failed;
    return Read::kEnded;
  }
  const Result<FrameHead> head = read_head(first);
  if (!head) {
    why = fmt::format("{} has sent what is {}", peer_, head.error().what);
    return Read::kEnded;
  }
  if (head->kind == FrameKind::kAlive) return Read::kFrame;
  if (head->kind == FrameKind::kLeave) return Read::kLeft;
  std::vector<std::byte> bytes;
  if (auto failed = read_bytes(head->bytes, bytes)) {
    why = *failed;
    return Read::kEnded;
  }
  if (head->kind == FrameKind::kEnd) {
    why.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Read::kEnded;
  }
  if (head->kind == FrameKind::kData)
    data_.push({.call = head->call, .bytes = std::move(bytes)});
  else
    messages_.push(std::move(bytes));
  return Read::kFrame;
}

// A head may announce more than ever comes, so memory grows with what has come.
std::optional<std::string> TcpLink::read_bytes(uint64_t size, std::vector<std::byte>& to) const {
  while (to.size() < size) {
    const size_t at = to.size();
    const size_t more = std::min<uint64_t>(size - at, std::max(kLeastRead, at));
    to.resize(at + more);
    if (auto failed = read_all(to.data() + at, more)) return failed;
  }
  return std::nullopt;
}

// Returns why there are no further bytes, or nothing.
std::optional<std::string> TcpLink::read_all(std::byte* to, size_t size) const {
  while (size > 0) {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(silence_ * 1e3));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return fmt::format("{} has been silent for {:g} s", peer_, silence_);
    const ssize_t got = recv(fd_, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fmt::format("{} is gone", peer_);
    to += got;
    size -= static_cast<size_t>(got);
  }
  return std::nullopt;
}

}  // namespace skiff::comm
