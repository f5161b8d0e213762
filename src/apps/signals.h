// apps/signals.h -- SIGTERM, SIGINT and SIGHUP as something that a thread can wait for.
#pragma once
#include <chrono>
#include <optional>

namespace skiff {

// For the time before there is anything to wind down: SIGINT and SIGTERM end the process at once
// with 128 + their number, also where it is the first of a container and the kernel would drop
// them. SIGHUP waits for wait_for_signal(); SIGPIPE and SIGXFSZ are ignored.
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

// Any thread.
void wake_signal_wait();

}  // namespace skiff
