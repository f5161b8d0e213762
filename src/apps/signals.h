// apps/signals.h -- SIGTERM, SIGINT and SIGHUP as something that main can wait for.
#pragma once

namespace skiff {

// For the time before there is anything to wind down: SIGINT and SIGTERM end the process at once
// with 128 + their number, also where it is the first of a container and the kernel would drop
// them. SIGHUP waits for wait_for_signal(); SIGPIPE and SIGXFSZ are ignored.
void catch_signals_while_starting();

// From now on SIGINT and SIGTERM no longer end the process but wake wait_for_signal(); SIGPIPE is
// ignored.
void catch_signals();

// Blocks until a SIGINT, SIGTERM or SIGHUP that has not been told yet; returns its number, the
// first two before the third. One thread at a time.
int wait_for_signal();

// Makes a wait_for_signal() under way return 0. Any thread.
void stop_waiting();

}  // namespace skiff
