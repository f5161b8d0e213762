// apps/signals.h -- SIGTERM and SIGINT as something that main can wait for.
#pragma once

namespace skiff {

// From now on SIGINT and SIGTERM no longer end the process but wake wait_for_signal(); SIGPIPE is
// ignored. Call once, when there is something to wind down.
void catch_signals();

// Blocks until the next SIGINT or SIGTERM; returns its number. One thread at a time.
int wait_for_signal();

// Makes a wait_for_signal() under way return 0. Any thread.
void stop_waiting();

}  // namespace skiff
