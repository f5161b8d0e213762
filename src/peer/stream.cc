#include "peer/stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace skiff::peer {
namespace {

struct Found {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Result<Found> look_up(const Address& address, int flags) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const std::string port = std::to_string(address.port);
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (failed != 0 || list == nullptr)
    return Error{Code::kInvalid, fmt::format("\"{}\": {}", address.host, gai_strerror(failed))};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  Found found;
  found.size = list->ai_addrlen;
  std::memcpy(&found.address, list->ai_addr, found.size);
  return found;
}

const sockaddr* plain(const Found& found) {
  return reinterpret_cast<const sockaddr*>(&found.address);
}

Error trouble(const char* what, const Address& address) {
  return {Code::kExhausted,
          fmt::format("{} {} port {}: {}", what, address.host, address.port, strerror(errno))};
}

// Sends at once, and notices within 20 s that the machine of a silent peer is gone. What is being
// sent has time limits of its own.
void set_options(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Wake::Wake() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { SKIFF_CHECK(fd_.open()); }

void Wake::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd_.get(), &one, sizeof one);
}

void Wake::clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
}

bool is_loopback(const std::string& host) {
  const auto found = look_up({host, 0}, AI_NUMERICHOST);
  if (!found) return false;
  if (const auto* v4 = reinterpret_cast<const sockaddr_in*>(&found->address);
      v4->sin_family == AF_INET)
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&found->address);
  return v6->sin6_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

Result<Address> resolved(const Address& address) {
  const auto found = look_up(address, 0);
  if (!found) return found.error();
  char host[NI_MAXHOST];
  getnameinfo(plain(*found), found->size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return Address{host, address.port};
}

Result<Fd> listen_on(const Address& address) {
  const auto found = look_up(address, AI_NUMERICHOST | AI_PASSIVE);
  if (!found) return found.error();
  Fd fd(socket(found->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (fd.open()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!fd.open() || bind(fd.get(), plain(*found), found->size) != 0 || listen(fd.get(), 64) != 0)
    return trouble("cannot listen on", address);
  return fd;
}

Result<Fd> connect_to(const Address& address) {
  const auto found = look_up(address, AI_NUMERICHOST);
  if (!found) return found.error();
  Fd fd(socket(found->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return trouble("no socket for", address);
  set_options(fd.get());
  if (connect(fd.get(), plain(*found), found->size) != 0 && errno != EINPROGRESS)
    return trouble("cannot reach", address);
  return fd;
}

int port_of(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

std::string host_of_peer(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return {};
  return host;
}

Fd accept_from(const Fd& listener) {
  Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.open()) set_options(fd.get());
  return fd;
}

bool Stream::receive(size_t most) {
  const size_t before = in_.size();
  in_.resize(before + most);
  const ssize_t n = recv(fd(), in_.data() + before, most, 0);
  in_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void Stream::consume(size_t bytes) {
  used_ += bytes;
  if (used_ < in_.size() && used_ < size_t{1} << 20) return;
  in_.erase(0, used_);
  used_ = 0;
}

bool Stream::receive_into(std::span<std::byte> to, size_t& got) {
  const std::string_view here = received().substr(0, to.size());
  std::memcpy(to.data(), here.data(), here.size());
  got = here.size();
  consume(got);
  if (got == to.size()) return true;
  const ssize_t n = recv(fd(), to.data() + got, to.size() - got, 0);
  got += static_cast<size_t>(std::max<ssize_t>(n, 0));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

// Adds to `sent` what the system takes. Returns false if the connection has ended.
bool Stream::send_some(const void* data, size_t size, int flags, size_t& sent) {
  while (sent < size) {
    const ssize_t n =
        ::send(fd(), static_cast<const char*>(data) + sent, size - sent, MSG_NOSIGNAL | flags);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool Stream::send() {
  for (;;) {
    const bool more = !body_.empty() || !later_.empty();
    if (!send_some(out_.data(), out_.size(), more ? MSG_MORE : 0, sent_)) return false;
    if (sent_ < out_.size()) return true;
    out_.clear();
    sent_ = 0;
    size_t of_body = 0;
    if (!send_some(body_.data(), body_.size(), 0, of_body)) return false;
    body_ = body_.subspan(of_body);
    if (!body_.empty() || later_.empty()) return true;
    out_.swap(later_);
  }
}

}  // namespace skiff::peer
