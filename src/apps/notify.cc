#include "apps/notify.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

int datagram_socket() { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

}  // namespace

void notify(const std::string& name, std::string_view state) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (name.empty() || name.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const int fd = datagram_socket();
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  sendto(fd, state.data(), state.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address), size);
  close(fd);
}

std::string notify_socket() {
  const char* name = std::getenv("NOTIFY_SOCKET");
  return name ? name : "";
}

Progress notifying(Progress next) {
  return [next = std::move(next), name = notify_socket(), last = uint64_t{101}](
             uint64_t done, uint64_t total) mutable {
    if (next) next(done, total);
    const uint64_t percent = total == 0 ? 100 : 100 * done / total;
    if (percent == last) return;
    last = percent;
    notify(name, fmt::format("STATUS=loading weights, {}%", percent));
  };
}

NotifyListener::NotifyListener() : fd_(datagram_socket()) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t size = sizeof address;
  // A bind without a path lets the kernel choose an abstract address.
  const bool bound = fd_ >= 0 &&
                     bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0 &&
                     getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!bound) fail_load("cannot make a socket: {}", std::strerror(errno));
  name_.assign(address.sun_path, size - offsetof(sockaddr_un, sun_path));
  if (!name_.empty()) name_[0] = '@';
}

NotifyListener::~NotifyListener() { close(fd_); }

std::string NotifyListener::next(int milliseconds) {
  pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, milliseconds) <= 0) return {};
  std::array<char, 4096> bytes;
  const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  return n > 0 ? std::string(bytes.data(), static_cast<size_t>(n)) : std::string();
}

std::string_view notified(std::string_view state, std::string_view name) {
  while (!state.empty()) {
    const std::string_view line = state.substr(0, state.find('\n'));
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=')
      return line.substr(name.size() + 1);
    state.remove_prefix(std::min(state.size(), line.size() + 1));
  }
  return {};
}

}  // namespace skiff::apps
