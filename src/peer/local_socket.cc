#include "peer/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "peer/wire.h"

namespace skiff::peer {
namespace {

constexpr size_t kPathAt = offsetof(sockaddr_un, sun_path);

// A name of the abstract namespace: its first byte is 0. Returns its length, 0 if it is too long.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return 0;
  std::ranges::copy(name, address.sun_path + 1);
  return static_cast<socklen_t>(kPathAt + 1 + name.size());
}

const sockaddr* plain(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

std::string random_name() {
  std::string name = "skiff-";
  const Digest random = random_nonce();
  for (size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", random[i]);
  return name;
}

// Room for what the system says of the sender, and for one file.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))> bytes{};
};

// All files of the message, which are this process's from now on.
void take_control(msghdr& message, LocalSocket::Letter& letter, bool& known) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(c), sizeof sender);
      letter.user = sender.uid;
      known = true;
    }
    const size_t files = c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    for (size_t i = 0; i < files; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      letter.file = Fd(fd);  // one before it is closed
    }
  }
}

}  // namespace

Result<LocalSocket> LocalSocket::open() {
  const auto refused = [] {
    return Error{Code::kExhausted, fmt::format("no local socket: {}", std::strerror(errno))};
  };
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (!fd.open() || setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
    return refused();
  std::string name = random_name();
  sockaddr_un address{};
  const socklen_t size = fill(address, name);
  if (bind(fd.get(), plain(address), size) != 0) return refused();
  return LocalSocket(std::move(fd), std::move(name));
}

std::optional<LocalSocket::Letter> LocalSocket::take() const {
  bool more = true;
  while (more)
    if (auto letter = take_one(more)) return letter;
  return std::nullopt;
}

// `more`: another letter may be there.
std::optional<LocalSocket::Letter> LocalSocket::take_one(bool& more) const {
  char text[kMaxText];
  iovec part{text, sizeof text};
  sockaddr_un from{};
  Control control;
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t n = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
  more = n >= 0 || errno == EINTR;
  if (n < 0) return std::nullopt;
  Letter letter;
  bool known = false;
  take_control(message, letter, known);
  letter.text.assign(text, static_cast<size_t>(n));
  if (message.msg_namelen > kPathAt + 1)
    letter.from.assign(from.sun_path + 1, message.msg_namelen - kPathAt - 1);
  if (!known || letter.from.empty()) return std::nullopt;
  return letter;
}

bool LocalSocket::send(const std::string& to, const std::string& text, int file) const {
  sockaddr_un address{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = fill(address, to);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control;
  if (file >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(sizeof file);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(head), &file, sizeof file);
  }
  return message.msg_namelen > 0 && sendmsg(fd(), &message, MSG_NOSIGNAL) >= 0;
}

}  // namespace skiff::peer
