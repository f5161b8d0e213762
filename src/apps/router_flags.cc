#include "apps/router_flags.h"

#include <fmt/format.h>

#include "base/log.h"
#include "serve/http/host_list.h"

namespace skiff::apps {
namespace {

Json instance_of(const Args& args, const std::string& host, const AnnouncedPort& at,
                 int block_port) {
  const std::string role = args.text("splitwise-role");
  Json instance = {{"role", role}, {"port", at.port}, {"version", SKIFF_VERSION}};
  if (at.metrics != at.port) instance["metrics_port"] = at.metrics;
  if (!host.empty()) instance["host_ip"] = host;
  if (args.given("ssl-certfile")) instance["scheme"] = "https";
  if (role == "mixed") return instance;
  if (role == "prefill") instance["connector_port"] = block_port;
  instance["transfer_protocol"] = Json::array({"tcp"});
  instance["tp_size"] = args.integer("tensor-parallel-size");
  return instance;
}

fetch::Url router_of(const Args& args) {
  auto router = route::parse_router(args.text("router"));
  if (!router) throw UsageError(router.error().what);
  return std::move(*router);
}

// Returns the address that the router is told; empty: the one that leads there, which is looked for
// at each registration, because the router may get its own address later than this server.
std::string advertised(const Args& args) {
  const std::string given = args.text("router-advertise");
  return given.empty() && !http::is_wildcard(args.text("host")) ? args.text("host") : given;
}

// Decode servers are sent to the block port at the address that the router is told.
void warn_of_unreachable_blocks(const Args& args, const fetch::Url& router, std::string host) {
  const std::string blocks = args.text("pd-comm-host");
  if (args.text("splitwise-role") != "prefill" || !http::is_loopback(blocks)) return;
  fetch::NameLookup names;
  if (host.empty()) host = route::address_towards(router, names);
  if (host.empty() || http::is_loopback(host)) return;
  spdlog::warn(
      "the router tells decode servers to fetch blocks at {}, but --pd-comm-host is {}: nobody "
      "reaches them there, and each prompt is computed twice; give --pd-comm-host and "
      "--pd-comm-key-file",
      host, blocks);
}

}  // namespace

std::vector<std::string> idle_router_flags(const Args& args) {
  std::vector<std::string> warnings;
  const auto need = [&](const char* flag, const char* other) {
    if (args.given(flag))
      warnings.push_back(fmt::format("--{} has no effect without --{}", flag, other));
  };
  const bool routes = args.command() == kRoute;
  if (!routes && !args.given("router"))
    for (const char* flag : {"router-key-file", "router-advertise"}) need(flag, "router");
  if (routes && !args.on("splitwise"))
    for (const char* flag : {"prefill-policy", "decode-policy"}) need(flag, "splitwise");
  if (routes && args.on("splitwise") && args.given("policy"))
    warnings.emplace_back(
        "--policy has no effect with --splitwise: see --prefill-policy and --decode-policy");
  return warnings;
}

void check_router(const Args& args) {
  if (args.given("router")) router_of(args);
}

std::vector<AnnouncedPort> announced_ports(const PortPlan& plan,
                                           const std::vector<uint16_t>& bound) {
  std::vector<AnnouncedPort> all;
  all.reserve(plan.serving);
  for (size_t i = 0; i < plan.serving; ++i)
    all.push_back({.port = bound.at(i), .metrics = bound.at(plan.metrics.at(i))});
  return all;
}

std::vector<route::AnnouncerSettings> router_settings(const Args& args,
                                                      const std::vector<AnnouncedPort>& ports,
                                                      int block_port) {
  if (!args.given("router")) {
    for (const std::string& warning : idle_router_flags(args)) spdlog::warn("{}", warning);
    return {};
  }
  const fetch::Url router = router_of(args);
  const std::string host = advertised(args);
  warn_of_unreachable_blocks(args, router, host);
  std::vector<route::AnnouncerSettings> all;
  all.reserve(ports.size());
  for (const AnnouncedPort& at : ports)
    all.push_back({.router = router,
                   .key_file = args.text("router-key-file"),
                   .instance = instance_of(args, host, at, block_port)});
  return all;
}

}  // namespace skiff::apps
