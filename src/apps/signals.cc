#include "apps/signals.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>

namespace skiff {
namespace {

// In the order in which they are told. 0 is stop_waiting().
constexpr int kKinds[] = {SIGTERM, SIGINT, SIGHUP, 0};

// A signal handler can reach nothing but what has static storage, so this has some: a
// semaphore that the handler may post, and how many of each kind have come.
struct Mailbox {
  sem_t posted;
  std::atomic<int> waiting[std::size(kKinds)] = {};
  Mailbox() { sem_init(&posted, 0, 0); }
};

Mailbox& mailbox() {
  static Mailbox box;
  return box;
}

void post(int signal) {
  const int saved = errno;
  for (size_t i = 0; i < std::size(kKinds); ++i)
    if (kKinds[i] == signal) ++mailbox().waiting[i];
  sem_post(&mailbox().posted);
  errno = saved;
}

void end(int signal) { _exit(128 + signal); }

void on(int signal, void (*act)(int)) {
  mailbox();
  struct sigaction action = {};
  action.sa_handler = act;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_signals_while_starting() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a bound on file sizes is an error of write(), not our end
  on(SIGHUP, post);
  on(SIGINT, end);
  on(SIGTERM, end);
}

void catch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  on(SIGINT, post);
  on(SIGTERM, post);
}

// Each post raised one count and the semaphore, so there is one to find.
int wait_for_signal() {
  while (sem_wait(&mailbox().posted) != 0 && errno == EINTR) {
  }
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    int count = mailbox().waiting[i];
    while (count > 0)
      if (mailbox().waiting[i].compare_exchange_weak(count, count - 1)) return kKinds[i];
  }
  return 0;
}

void stop_waiting() { post(0); }

}  // namespace skiff
