#include "apps/router_flags.h"

#include "base/load_error.h"
#include "base/log.h"
#include "serve/http/host_list.h"

namespace skiff::apps {
namespace {

Json instance_of(const Args& args, const std::string& host, uint16_t port, int block_port) {
  const std::string role = args.text("splitwise-role");
  Json instance = {{"role", role}, {"host_ip", host}, {"port", port}, {"version", SKIFF_VERSION}};
  if (args.given("ssl-certfile")) instance["scheme"] = "https";
  if (role == "mixed") return instance;
  if (role == "prefill") instance["connector_port"] = block_port;
  instance["transfer_protocol"] = Json::array({"tcp"});
  instance["tp_size"] = args.integer("tensor-parallel-size");
  return instance;
}

// Decode servers are sent to the block port at the address that the router is told.
void warn_of_unreachable_blocks(const Args& args, const std::string& host) {
  const std::string blocks = args.text("pd-comm-host");
  if (args.text("splitwise-role") != "prefill" || http::is_loopback(host) ||
      !http::is_loopback(blocks))
    return;
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

std::optional<route::AnnouncerSettings> router_settings(const Args& args, uint16_t port,
                                                        int block_port) {
  if (!args.given("router")) {
    for (const std::string& warning : idle_router_flags(args)) spdlog::warn("{}", warning);
    return std::nullopt;
  }
  auto router = route::parse_router(args.text("router"));
  if (!router) throw UsageError(router.error().what);
  std::string host = args.text("router-advertise");
  if (host.empty() && !http::is_wildcard(args.text("host"))) host = args.text("host");
  if (host.empty()) host = route::address_towards(*router);
  if (host.empty())
    throw LoadError(fmt::format(
        "--router {}: no address of this machine leads there; give one with --router-advertise",
        args.text("router")));
  warn_of_unreachable_blocks(args, host);
  return route::AnnouncerSettings{.router = std::move(*router),
                                  .key_file = args.text("router-key-file"),
                                  .instance = instance_of(args, host, port, block_port)};
}

}  // namespace skiff::apps
