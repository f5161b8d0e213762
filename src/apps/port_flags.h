// apps/port_flags.h -- reads the flags that say at which HTTP ports a server listens and what each
// of them is for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/args.h"
#include "serve/server_config.h"

namespace skiff::apps {

struct PortPlan {
  std::vector<uint16_t> ports;       // by http::HttpRequest::door; 0: any free one
  std::vector<serve::PortUse> uses;  // what each port is for
  // The ports that take requests come first: one for all replicas, or one for each.
  size_t serving = 1;
  std::vector<size_t> metrics;  // for each of these, the one that has its metrics

  bool for_each_replica() const { return uses.front().replica.has_value(); }
};

// Throws UsageError where the flags contradict each other or `replicas`, those of this node.
PortPlan port_plan(const Args& args, int replicas);

// Puts the ports into the server's configuration.
void apply_ports(const PortPlan& plan, serve::ServerConfig* config);

// Logs what the server listens on. `bound` are its ports.
void log_ports(const PortPlan& plan, const std::string& host, const std::vector<uint16_t>& bound);

// Returns the port that names the files of a server in the background: the first one.
int64_t naming_port(const Args& args);

}  // namespace skiff::apps
