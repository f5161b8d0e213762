#include "apps/signals.h"

#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace skiff {
namespace {

// A signal handler can reach nothing but what has static storage, so this is the one place that
// has any: a counter that the handler may post and the last signal's number.
struct Mailbox {
  sem_t posted;
  std::atomic<int> last{0};
  Mailbox() { sem_init(&posted, 0, 0); }
};

Mailbox& mailbox() {
  static Mailbox box;
  return box;
}

void post(int signal) {
  const int saved = errno;
  mailbox().last = signal;
  sem_post(&mailbox().posted);
  errno = saved;
}

}  // namespace

void catch_signals() {
  mailbox();
  struct sigaction action = {};
  action.sa_handler = post;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int wait_for_signal() {
  while (sem_wait(&mailbox().posted) != 0 && errno == EINTR) {
  }
  return mailbox().last;
}

void stop_waiting() { post(0); }

}  // namespace skiff
