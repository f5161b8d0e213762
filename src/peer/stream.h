// peer/stream.h -- a TCP connection that never blocks, with what was read and what is to be sent.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "peer/settings.h"

namespace skiff::peer {

// Owns a file descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd();
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

// An event by which one thread ends another's poll().
class Wake {
 public:
  Wake();
  int fd() const { return fd_.get(); }
  void signal() const;  // makes fd() readable; any thread may call it
  void clear() const;   // makes it unreadable again

 private:
  Fd fd_;
};

// Returns true if the host is an address of this machine's loopback.
bool is_loopback(const std::string& host);
// Returns the address with a numeric host. A name is looked up, which may take seconds.
Result<Address> resolved(const Address& address);
// Both take a numeric host. connect_to() returns before the connection stands; that it cannot be
// made shows when it is used.
Result<Fd> listen_on(const Address& address);
Result<Fd> connect_to(const Address& address);
int port_of(const Fd& listener);
std::string host_of_peer(int fd);  // numeric; empty if the connection has ended
// Returns a connection that waits, or a closed Fd if there is none.
Fd accept_from(const Fd& listener);

// Not thread-safe.
class Stream {
 public:
  explicit Stream(Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }
  Fd take() { return std::move(fd_); }  // the connection goes on without this object
  // Reads what there is, at most `most` bytes. Returns false if the connection has ended.
  bool receive(size_t most);
  std::string_view received() const { return std::string_view(in_).substr(used_); }
  void consume(size_t bytes);
  // Moves what was received, and then reads what there is, to the beginning of `to`, so that large
  // data is not copied twice. Sets `got` to the number of bytes. Returns false if the connection
  // has ended.
  bool receive_into(std::span<std::byte> to, size_t& got);

  // What is appended here is sent behind everything that waits to be sent. Append only.
  std::string& out() { return body_.empty() ? out_ : later_; }
  // Sends these bytes behind what out() has now, from where they are: they stay there until
  // body_sent(). Requires body_sent().
  void send_body(std::span<const std::byte> bytes) { body_ = bytes; }
  bool body_sent() const { return body_.empty(); }
  size_t unsent() const { return out_.size() - sent_ + body_.size() + later_.size(); }
  // Sends what the system takes now. Returns false if the connection has ended.
  bool send();

 private:
  Fd fd_;
  bool send_some(const void* data, size_t size, int flags, size_t& sent);

  std::string in_, out_;
  size_t used_ = 0, sent_ = 0;       // bytes of in_ and out_ that are done with
  std::span<const std::byte> body_;  // what is left of it; comes behind out_
  std::string later_;                // comes behind body_
};

}  // namespace skiff::peer
