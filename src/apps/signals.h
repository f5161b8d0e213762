// apps/signals.h -- lets a thread wait for SIGTERM, SIGINT and SIGHUP.
#pragma once
#include <chrono>
#include <optional>

namespace skiff::apps {

// For the time before there is anything to shut down: SIGINT and SIGTERM end the process at once
// with 128 + their number, even as PID 1 of a container, where the kernel would otherwise drop
// them. SIGHUP is kept for wait_for_signal(); SIGPIPE and SIGXFSZ are ignored.
void catch_signals_while_starting();

// From now on SIGINT and SIGTERM no longer end the process but wake wait_for_signal(); SIGPIPE is
// ignored.
void catch_signals();

// What wait_for_signal() returns besides the numbers of signals.
constexpr int kWoken = 0, kTimeUp = -1;

// Blocks until a SIGINT, SIGTERM or SIGHUP arrives that no call has returned yet, and returns its
// number, the first two before the third; kWoken after wake_signal_wait(), kTimeUp at `end`. One
// thread at a time.
int wait_for_signal(std::optional<std::chrono::steady_clock::time_point> end);

// May be called from any thread.
void wake_signal_wait();

}  // namespace skiff::apps
