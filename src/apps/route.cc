// `skiff route`: a router in front of several servers.
#include <csignal>
#include <fstream>
#include <random>

#include "apps/commands.h"
#include "apps/edge_flags.h"
#include "apps/open_files.h"
#include "apps/router_flags.h"
#include "apps/signal_guard.h"
#include "apps/signals.h"
#include "apps/stall.h"
#include "base/load_error.h"
#include "base/log.h"
#include "route/router.h"
#include "serve/http/api_keys.h"
#include "serve/http/host_list.h"
#include "serve/server_config.h"

namespace skiff::apps {
namespace {

constexpr std::chrono::seconds kMaxStopping{10};

std::vector<route::Instance> backends(const Args& args) {
  std::vector<route::Instance> found;
  for (std::string_view text : args.texts("backends"))
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      auto instance = route::parse_backend_url(text.substr(0, comma));
      if (!instance) throw UsageError(instance.error().what);
      found.push_back(std::move(*instance));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  return found;
}

// The first key of the file that this flag names, if it was given.
std::string key_of(const Args& args, const std::string& flag) {
  if (!args.given(flag)) return "";
  auto keys = http::read_key_file(args.text(flag), flag);
  if (!keys) throw LoadError(keys.error().what);
  return keys->front();
}

// Without admin keys of its own the router leaves it to servers to look at a caller's key, which
// this one would replace.
std::string backend_admin_key(const Args& args, const route::RouterConfig& config) {
  std::string key = key_of(args, "backend-admin-key-file");
  if (!key.empty() && config.admin_keys.empty())
    throw UsageError(
        "--backend-admin-key-file without an admin key of the router: every client could end all "
        "requests; give --admin-key-file");
  return key;
}

route::PolicySettings policy_settings(const Args& args) {
  return {.hit_ratio_weight = args.number("hit-ratio-weight"),
          .load_balance_weight = args.number("load-balance-weight"),
          .balance_abs_threshold = static_cast<int>(args.integer("balance-abs-threshold")),
          .balance_rel_threshold = args.number("balance-rel-threshold"),
          .max_imbalance = args.number("max-imbalance")};
}

// The flags of the edge are those of `skiff serve`.
void take_edge(const Args& args, route::RouterConfig* config) {
  serve::ServerConfig edge;
  apply_edge_flags(args, &edge);
  config->http = edge.http;
  config->http.port = static_cast<uint16_t>(args.integer("port"));
  config->http.io_threads = 1;
  config->http.worker_threads = 1;
  config->api_keys = edge.api_keys;
  config->admin_keys = edge.admin_keys;
  config->cors = {.origins = edge.cors_origins,
                  .methods = edge.cors_methods,
                  .headers = edge.cors_headers,
                  .credentials = edge.cors_credentials};
  config->allowed_hosts = edge.allowed_hosts;
  config->access_log = edge.access_log;
  // A client's connection and one to a server.
  const uint64_t limit = raise_open_file_limit();
  config->http.max_connections = connections_that_fit(
      config->http.max_connections, config->http.max_probe_connections, limit / 2);
}

route::RouterConfig router_config(const Args& args) {
  route::RouterConfig config;
  take_edge(args, &config);
  config.open_registration = args.on("open-registration") || http::is_loopback(args.text("host"));
  config.backend_key = key_of(args, "backend-key-file");
  config.backend_admin_key = backend_admin_key(args, config);
  config.backend_ca_file = args.text("backend-ca-file");
  config.backends = backends(args);
  config.policy = args.text("policy");
  config.splitwise = args.on("splitwise");
  config.prefill_policy = args.text("prefill-policy");
  config.decode_policy = args.text("decode-policy");
  config.policies = policy_settings(args);
  config.max_blocks = static_cast<size_t>(args.integer("max-prefix-blocks"));
  config.health_interval = args.number("health-check-interval-secs");
  config.health_timeout = args.number("health-check-timeout-secs");
  config.health_failures = static_cast<int>(args.integer("health-failure-threshold"));
  config.health_successes = static_cast<int>(args.integer("health-success-threshold"));
  config.connect_seconds = args.number("connect-timeout");
  config.tries = 1 + static_cast<int>(args.integer("max-retries"));
  config.request_seconds = args.number("request-timeout-secs");
  config.stall_seconds = args.number("stall-timeout-secs");
  config.max_concurrency = static_cast<int>(args.integer("max-concurrency"));
  config.seed = std::random_device{}();
  config.version = SKIFF_VERSION;
  for (const char* flag : {"policy", "prefill-policy", "decode-policy"})
    if (const auto policy = route::make_policy(args.text(flag), config.policies, 0); !policy)
      throw UsageError(fmt::format("--{}: {}", flag, policy.error().what));
  if (config.splitwise && !config.backends.empty())
    throw UsageError(
        "--backends with --splitwise: prefill and decode servers register themselves (skiff serve "
        "--router)");
  return config;
}

void warn_of_open_doors(const Args& args, const route::RouterConfig& config) {
  const bool open = !http::is_loopback(args.text("host"));
  if (open && config.api_keys.empty())
    spdlog::warn(
        "--host {} without an API key: whoever reaches this port may use the servers behind it; "
        "give --api-key-file",
        args.text("host"));
  if (config.admin_keys.empty() && args.on("open-registration") && open)
    spdlog::warn(
        "--open-registration: whoever reaches this port may register a server and then "
        "reads requests; give --admin-key-file");
  if (config.admin_keys.empty() && !config.open_registration && config.backends.empty())
    spdlog::warn("there are no --backends, and without --admin-key none can register");
}

void reload(const Args& args, route::Router& router) {
  const auto keys = api_keys(args);
  const auto control = keys ? admin_keys(args, *keys) : keys;
  const Status done = control ? router.reload(*keys, *control) : Status(control.error());
  if (done)
    spdlog::info("SIGHUP: {} API keys, {} admin keys and the TLS files are in use as they are now",
                 keys->size(), control->size());
  else
    spdlog::error("SIGHUP: nothing was changed: {}", done.error().what);
}

}  // namespace

int run_route(const Args& args) {
  if (!args.positional().empty())
    throw UsageError(
        fmt::format("skiff route takes no model, but was given \"{}\"; its servers are "
                    "given with --backends, or register",
                    args.positional().front()));
  catch_signals_while_starting();
  route::RouterConfig config = router_config(args);
  warn_of_open_doors(args, config);
  for (const std::string& warning : idle_router_flags(args)) spdlog::warn("{}", warning);
  route::Router router(std::move(config));
  catch_signals();
  SignalGuard guard(kExitCutOff, [&router] { router.force(); });
  router.start();
  spdlog::info("listening on {} port {}", args.text("host"), router.port());
  while (guard.next() == SIGHUP) reload(args, router);
  const auto seconds = static_cast<double>(args.integer("timeout-graceful-shutdown"));
  spdlog::info("stopping: finishing replies for up to {} s; a second signal cuts them off",
               seconds);
  const bool clean = router.drain(args.number("drain-delay"), seconds);
  if (!clean) guard.end_within(kMaxStopping);
  router.stop();
  spdlog::info("stopped{}", clean ? "" : "; some replies were cut off");
  return clean ? 0 : kExitCutOff;
}

}  // namespace skiff::apps
