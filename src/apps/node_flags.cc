#include "apps/node_flags.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "apps/node_place.h"
#include "apps/parallel_flags.h"
#include "apps/vllm_node_flags.h"
#include "base/load_error.h"
#include "base/log.h"
#include "peer/stream.h"
#include "serve/http/api_keys.h"

namespace skiff::apps {
namespace {

// FastDeploy takes a list, with a port for each replica.
int meeting_port(const Args& args) {
  const std::string text = args.text("engine-worker-queue-port");
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || (*end != '\0' && *end != ',') || port < 0 || port > 65535)
    throw UsageError(fmt::format(
        "--engine-worker-queue-port is \"{}\"; it must be a port, from 0 to 65535", text));
  return port;
}

std::string key_of(const Args& args) {
  const std::string file = args.text("node-key-file");
  if (file.empty()) return {};
  const auto keys = http::read_key_file(file, "node-key-file");
  if (!keys) fail_load("{}", keys.error().what);
  return keys->front();
}

nodes::Settings spread_settings(const Args& args, const NodePlace& place, const NodeFacts& facts) {
  nodes::Settings settings{.node = place.node,
                           .nodes = place.nodes,
                           .first = {first_address(facts), meeting_port(args)},
                           .key = key_of(args),
                           .join_seconds = args.number("dist-timeout"),
                           .facts = {}};
  if (place.node > 0 && settings.first.port == 0)
    throw UsageError(
        "--engine-worker-queue-port is 0, but this is not the first node: give the port at which "
        "that one listens");
  if (settings.key.empty() && place.node == 0 && !peer::is_loopback(settings.first.host))
    spdlog::warn(
        "no --node-key-file: whoever reaches {} port {} while the nodes come together may join "
        "them",
        settings.first.host, settings.first.port);
  return settings;
}

void warn_of_unused(const Args& args) {
  for (const char* flag : {"engine-worker-queue-port", "node-key-file", "dist-timeout"})
    if (args.given(flag))
      spdlog::warn("--{} has no effect: no model is spread over several nodes", flag);
}

}  // namespace

NodePlan node_plan(const Args& args) {
  const NodeFacts facts{
      .look_up = [](const char* name) -> const char* { return std::getenv(name); },
      .ips = args.text("ips"),
      .rank = args.given("node-rank") ? static_cast<int>(args.integer("node-rank")) : -1,
      .own = own_addresses()};
  const NodePlace place = find_node(facts);
  const int all = replicas_of(args);
  const auto ranks = static_cast<int>(args.integer("tensor-parallel-size"));
  const NodeShare share = share_of_node(place, all, ranks);
  const auto [replicas, spread] = share;
  const bool names_first = place.nodes > 1 && args.given("data-parallel-address");
  check_vllm_node_flags(args, {.place = place,
                               .share = share,
                               .all_replicas = all,
                               .first = names_first ? first_address(facts) : std::string()});
  if (spread) {
    spdlog::info("node {} of {} ({}) has {} of {} ranks{}", place.node, place.nodes, place.source,
                 ranks / place.nodes, ranks,
                 place.node == 0 ? " and serves" : "; node 0 plans and serves");
    return {.replicas = 1, .nodes = spread_settings(args, place, facts)};
  }
  warn_of_unused(args);
  if (place.nodes > 1)
    spdlog::info(
        "node {} of {} ({}) runs {} of {} replicas behind its own port: a router in front of the "
        "nodes deals requests to them",
        place.node, place.nodes, place.source, replicas, all);
  return {.replicas = replicas, .nodes = {}};
}

}  // namespace skiff::apps
