#include "apps/signal_guard.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include "apps/signals.h"

namespace skiff::apps {
namespace {

// Writes straight to the descriptor, and only if that does not block, because the log's mutex or
// the reader of stderr may be what hangs.
void say_last(std::string_view line) {
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

SignalGuard::SignalGuard(int exit_code, std::function<void()> cut_off)
    : exit_code_(exit_code), cut_off_(std::move(cut_off)), thread_([this] { run(); }) {}

SignalGuard::~SignalGuard() {
  over_ = true;
  wake_signal_wait();
  thread_.join();
}

int SignalGuard::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !signals_.empty(); });
  const int signal = signals_.front();
  signals_.pop_front();
  return signal;
}

void SignalGuard::end_within(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  auto before = end_.load();
  while (end < before && !end_.compare_exchange_weak(before, end)) {
  }
  wake_signal_wait();
}

void SignalGuard::run() {
  while (!over_) {
    const auto end = end_.load();
    const int signal =
        wait_for_signal(end == Clock::time_point::max() ? std::nullopt : std::optional(end));
    if (over_) return;
    if (signal == kTimeUp) end_now();
    if (signal != kWoken) take(signal);
  }
}

void SignalGuard::take(int signal) {
  if (signal != SIGHUP) ++endings_;
  if (endings_ > 2) end_now();
  if (endings_ == 2 && signal != SIGHUP) {
    cut_off_();
    return end_within(kHurry);
  }
  if (signal == SIGHUP && endings_ > 0) return;
  {
    std::lock_guard lock(mutex_);
    signals_.push_back(signal);
  }
  changed_.notify_one();
}

void SignalGuard::end_now() const {
  say_last("skiff: a thread did not end in time; the process ends without it\n");
  _exit(exit_code_);
}

}  // namespace skiff::apps
