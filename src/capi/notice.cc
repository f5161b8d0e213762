#include "capi/notice.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace skiff::capi {

Notice::Notice() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "no descriptor for events");
}

Notice::~Notice() { close(fd_); }

// set() fails only if the counter is at its maximum, and clear() only if it is 0; then there is
// nothing to change.
void Notice::set() const {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof(one));
}

void Notice::clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = read(fd_, &count, sizeof(count));
}

Notice::Woken Notice::wait(int timeout_ms) const {
  pollfd watched{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = poll(&watched, 1, timeout_ms < 0 ? -1 : timeout_ms);
  if (ready > 0) return Woken::kSet;
  return ready < 0 && errno == EINTR ? Woken::kInterrupted : Woken::kTimeUp;
}

}  // namespace skiff::capi
