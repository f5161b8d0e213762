// apps/signals.h -- SIGTERM, SIGINT and SIGHUP as something that main can wait for.
#pragma once

namespace skiff {

// From now on SIGHUP no longer ends the process but waits for wait_for_signal(). SIGPIPE is
// ignored by this and the next.
void catch_reload();

// The same for SIGINT and SIGTERM. Call once, when there is something to wind down.
void catch_signals();

// Blocks until a SIGINT, SIGTERM or SIGHUP that has not been told yet; returns its number, the
// first two before the third. One thread at a time.
int wait_for_signal();

// Makes a wait_for_signal() under way return 0. Any thread.
void stop_waiting();

}  // namespace skiff
