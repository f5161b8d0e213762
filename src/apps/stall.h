// apps/stall.h -- ends `skiff serve` when its engine hangs or fails.
#pragma once
#include <functional>
#include <string>

#include "engine/llm.h"
#include "engine/watchdog.h"
#include "serve/server.h"

namespace skiff::apps {

// Exit codes of the process, documented in docs/operations.md; 0 is a clean end, 1 trouble at
// start-up, 2 a usage error.
constexpr int kExitCutOff = 3;   // replies were cut off by a second signal or the deadline
constexpr int kExitStalled = 4;  // the watchdog ended the process
constexpr int kExitFailed = 5;   // the engine could not go on: its device or another node is lost

// Makes liveness fail, logs the stacks of all threads, ends the replies under way with an error and
// then the process with kExitStalled, even if the log is what hangs.
engine::Watchdog::Hooks stall_hooks(const engine::Llm& llm, serve::Server& server, double limit);

// The callback for EngineConfig::failed, which any thread may call. Makes liveness fail, ends
// the replies under way with an error and then the process with kExitFailed, after a second at the
// earliest, so that a probe may see the failure.
std::function<void(const std::string&)> failure_hook(serve::Server& server);

}  // namespace skiff::apps
