// apps/router_flags.h -- the flags with which `skiff serve` registers with a router.
#pragma once
#include <cstdint>
#include <optional>

#include "apps/args.h"
#include "route/announcer.h"

namespace skiff::apps {

// Returns what --router asks for, nothing without it. `port` is the one that the server listens on,
// and `block_port` the one at which a prefill server hands out blocks. Throws UsageError where the
// flags contradict each other, and LoadError where there is no way to the router.
std::optional<route::AnnouncerSettings> router_settings(const Args& args, uint16_t port,
                                                        int block_port);

}  // namespace skiff::apps
