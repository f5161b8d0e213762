// apps/router_flags.h -- the flags with which `skiff serve` registers with a router, and those of
// both that do nothing without another one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/args.h"
#include "apps/port_flags.h"
#include "route/announcer.h"

namespace skiff::apps {

// Returns a warning for each flag of routing that was given and has no effect without another one,
// or beside it.
std::vector<std::string> idle_router_flags(const Args& args);

// Throws UsageError where --router is no address. Is called before weights are loaded.
void check_router(const Args& args);

// A port that takes requests, and the one that has its metrics, which may be the same.
struct AnnouncedPort {
  uint16_t port = 0, metrics = 0;
};
// `bound` are the server's ports.
std::vector<AnnouncedPort> announced_ports(const PortPlan& plan,
                                           const std::vector<uint16_t>& bound);

// Returns what --router asks for, nothing without it: a registration for each of `ports`.
// `block_port` is the one at which a prefill server hands out blocks.
std::vector<route::AnnouncerSettings> router_settings(const Args& args,
                                                      const std::vector<AnnouncedPort>& ports,
                                                      int block_port);

}  // namespace skiff::apps
