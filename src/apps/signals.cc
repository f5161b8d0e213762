#include "apps/signals.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>

namespace skiff::apps {
namespace {

// Ordered by precedence in wait_for_signal().
constexpr int kKinds[] = {SIGTERM, SIGINT, SIGHUP, kWoken};

// A signal handler can reach static storage only: a semaphore that it may post, and counters of the
// signals of each kind.
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

bool wait_for_post(std::optional<std::chrono::steady_clock::time_point> end) {
  if (!end) return sem_wait(&mailbox().posted) == 0;
  const auto since = end->time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const timespec at{.tv_sec = seconds.count(),
                    .tv_nsec = std::chrono::nanoseconds(since - seconds).count()};
  return sem_clockwait(&mailbox().posted, CLOCK_MONOTONIC, &at) == 0;
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
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file-size limit becomes an error of write()
  on(SIGHUP, post);
  on(SIGINT, end);
  on(SIGTERM, end);
}

void catch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  on(SIGINT, post);
  on(SIGTERM, post);
}

// Each post raised one counter together with the semaphore, so a counter above zero exists.
int wait_for_signal(std::optional<std::chrono::steady_clock::time_point> end) {
  while (!wait_for_post(end))
    if (errno != EINTR) return kTimeUp;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    int count = mailbox().waiting[i];
    while (count > 0)
      if (mailbox().waiting[i].compare_exchange_weak(count, count - 1)) return kKinds[i];
  }
  return kWoken;
}

void wake_signal_wait() { post(kWoken); }

}  // namespace skiff::apps
