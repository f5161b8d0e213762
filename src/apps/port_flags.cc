#include "apps/port_flags.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/log.h"

namespace skiff::apps {
namespace {

using Ports = std::vector<uint16_t>;

// Reads ports with commas between them.
Ports ports_in(const Args& args, const char* flag) {
  const std::string text = args.text(flag);
  Ports all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    uint16_t port = 0;
    const auto [stop, error] = std::from_chars(word.begin(), word.end(), port);
    if (error != std::errc{} || stop != word.end())
      throw UsageError(fmt::format("--{} has \"{}\", which is no port, from 0 to 65535", flag,
                                   escaped(word, 80)));
    if (port != 0 && std::ranges::count(all, port) > 0)
      throw UsageError(fmt::format("--{} has port {} twice", flag, port));
    all.push_back(port);
    begin = end + 1;
  }
  return all;
}

void need_one_each(const char* flag, size_t count, int replicas) {
  if (count == static_cast<size_t>(replicas)) return;
  throw UsageError(
      fmt::format("--{} has {} ports, but there are {} replicas here: it has one for each of "
                  "--data-parallel-size; --port is one for all of them",
                  flag, count, replicas));
}

void check_flags(const Args& args) {
  const auto need = [&](const char* flag, const char* other) {
    if (args.given(flag) && !args.given(other))
      throw UsageError(fmt::format("--{} needs --{}, with a port for each replica", flag, other));
  };
  need("num-servers", "ports");
  need("metrics-ports", "ports");
  if (args.given("ports") && args.given("metrics-port"))
    throw UsageError("--metrics-port is for one port; beside --ports give --metrics-ports");
}

// Adds a door for metrics, unless they are asked for at the port that serves.
void add_metrics(PortPlan* plan, size_t serving, uint16_t port) {
  if (port != 0 && port == plan->ports[serving]) return;
  if (port != 0 && std::ranges::count(plan->ports, port) > 0)
    throw UsageError(fmt::format("port {} cannot have the metrics of another port", port));
  plan->metrics[serving] = plan->ports.size();
  plan->ports.push_back(port);
  plan->uses.push_back({.replica = plan->uses[serving].replica, .observes = true});
}

PortPlan one_for_all(const Args& args) {
  PortPlan plan{
      .ports = {static_cast<uint16_t>(args.integer("port"))}, .uses = {{}}, .metrics = {0}};
  if (args.given("metrics-port"))
    add_metrics(&plan, 0, static_cast<uint16_t>(args.integer("metrics-port")));
  return plan;
}

PortPlan one_for_each(const Args& args, int replicas) {
  PortPlan plan{.ports = ports_in(args, "ports"), .uses = {}, .metrics = {}};
  need_one_each("ports", plan.ports.size(), replicas);
  plan.serving = plan.ports.size();
  if (args.given("num-servers") && args.integer("num-servers") != replicas)
    throw UsageError(fmt::format("--num-servers is {}, but --ports has {} ports",
                                 args.integer("num-servers"), plan.serving));
  for (size_t i = 0; i < plan.serving; ++i) {
    plan.uses.push_back({.replica = static_cast<int>(i)});
    plan.metrics.push_back(i);
  }
  if (!args.given("metrics-ports")) return plan;
  const Ports metrics = ports_in(args, "metrics-ports");
  need_one_each("metrics-ports", metrics.size(), replicas);
  for (size_t i = 0; i < plan.serving; ++i) add_metrics(&plan, i, metrics[i]);
  return plan;
}

std::string use_in_words(const serve::PortUse& use) {
  if (!use.replica) return use.observes ? ": metrics and probes" : "";
  return fmt::format(": {}replica {}", use.observes ? "metrics and probes of " : "", *use.replica);
}

}  // namespace

PortPlan port_plan(const Args& args, int replicas) {
  check_flags(args);
  if (!args.given("ports")) return one_for_all(args);
  if (args.given("port"))
    spdlog::warn("--port {} has no effect beside --ports", args.integer("port"));
  return one_for_each(args, replicas);
}

void apply_ports(const PortPlan& plan, serve::ServerConfig* config) {
  config->http.port = plan.ports.front();
  config->http.more_ports = {plan.ports.begin() + 1, plan.ports.end()};
  config->port_uses = plan.uses;
}

void log_ports(const PortPlan& plan, const std::string& host, const std::vector<uint16_t>& bound) {
  for (size_t i = 0; i < bound.size(); ++i)
    spdlog::info("listening on {} port {}{}", host, bound[i], use_in_words(plan.uses[i]));
}

int64_t naming_port(const Args& args) {
  if (args.command() == kStop || !args.given("ports")) return args.integer("port");
  return ports_in(args, "ports").front();
}

}  // namespace skiff::apps
