#include "apps/chat/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

// A signal handler can reach static storage only.
std::atomic<int>& write_end() {
  static constinit std::atomic<int> fd{-1};
  return fd;
}

void queue_signal(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full pipe already holds thousands of unread signals, so dropping one more changes nothing.
  [[maybe_unused]] const ssize_t written = write(write_end(), &byte, 1);
  errno = saved;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

ChatSignals::ChatSignals(bool terminal) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) fail_load("pipe: {}", std::strerror(errno));
  read_end_ = ends[0];
  write_end() = ends[1];
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, queue_signal);
  if (terminal)
    for (const int signal : {SIGTSTP, SIGWINCH}) handle(signal, queue_signal);
  handle(SIGPIPE, SIG_IGN);
}

ChatSignals::~ChatSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) handle(signal, SIG_DFL);
  close(write_end().exchange(-1));
  close(read_end_);
}

int ChatSignals::take() {
  unsigned char signal = 0;
  return read(read_end_, &signal, 1) == 1 ? signal : 0;
}

Woken wait_for_either(const ChatSignals& signals, int fd) {
  pollfd fds[] = {{.fd = signals.fd(), .events = POLLIN}, {.fd = fd, .events = POLLIN}};
  while (poll(fds, 2, -1) < 0) {
  }
  return fds[0].revents != 0 ? Woken::kSignal : Woken::kReadable;
}

}  // namespace skiff::apps
