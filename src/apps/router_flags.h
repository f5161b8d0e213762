// apps/router_flags.h -- the flags with which `skiff serve` registers with a router, and those of
// both that do nothing without another one.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/args.h"
#include "route/announcer.h"

namespace skiff::apps {

// Returns a warning for each flag of routing that was given and has no effect without another one,
// or beside it.
std::vector<std::string> idle_router_flags(const Args& args);

// Throws UsageError where --router is no address. Is called before weights are loaded.
void check_router(const Args& args);

// Returns what --router asks for, nothing without it. `port` is the one that the server listens on,
// and `block_port` the one at which a prefill server hands out blocks.
std::optional<route::AnnouncerSettings> router_settings(const Args& args, uint16_t port,
                                                        int block_port);

}  // namespace skiff::apps
