// apps/stall.h -- what `skiff serve` does about an engine that hangs or fails.
#pragma once
#include <functional>
#include <string>

#include "engine/llm.h"
#include "engine/watchdog.h"
#include "serve/server.h"

namespace skiff {

// Of the process, in docs/operations.md; 0 is a clean end, 1 trouble at start, 2 a usage error.
constexpr int kExitCutOff = 3;   // replies were cut off by a second signal or the deadline
constexpr int kExitStalled = 4;  // the watchdog ended it
constexpr int kExitFailed = 5;   // the engine could not go on: its device is lost

// Liveness fails, stacks of all threads are logged, the process ends with kExitStalled: also if
// the log is what hangs.
Watchdog::Hooks stall_hooks(const Llm& llm, Server& server, double limit);

// For EngineConfig::failed. Liveness fails; a second later, so that a probe may see it, the process
// ends with kExitFailed.
std::function<void(const std::string&)> failure_hook(Server& server);

}  // namespace skiff
