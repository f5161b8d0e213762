// `skiff serve`: assembles engine, service and server, and stops them in order.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <list>
#include <optional>
#include <thread>

#include "apps/answer_flags.h"
#include "apps/commands.h"
#include "apps/edge_flags.h"
#include "apps/heap_trim.h"
#include "apps/journal_flags.h"
#include "apps/node_flags.h"
#include "apps/notify.h"
#include "apps/open_files.h"
#include "apps/pooled_model.h"
#include "apps/port_flags.h"
#include "apps/queue_flags.h"
#include "apps/router_flags.h"
#include "apps/scheduler_flags.h"
#include "apps/serve_node.h"
#include "apps/service_flags.h"
#include "apps/signal_guard.h"
#include "apps/signals.h"
#include "apps/splitting_flags.h"
#include "apps/stall.h"
#include "base/load_error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/residency.h"
#include "engine/resolve.h"
#include "engine/resolved.h"
#include "serve/http/host_list.h"
#include "serve/server.h"
#include "serve/service/engine_service.h"

namespace skiff::apps {
namespace {

// The time in which all threads must have ended once the deadline has cut replies off.
constexpr std::chrono::seconds kMaxStopping{10};

serve::ServerConfig server_config(const Args& args, const std::string& folder,
                                  const PortPlan& ports) {
  serve::ServerConfig config;
  apply_ports(ports, &config);
  config.grpc_port = args.given("grpc-port") ? static_cast<int>(args.integer("grpc-port")) : -1;
  config.paddle.max_dec_len = static_cast<int>(args.integer("max-dec-len"));
  config.paddle.disable_streaming = args.on("disable-streaming");
  config.http.worker_threads = static_cast<int>(args.integer("workers"));
  static_cast<service::ProtocolConfig&>(config) = protocol_config(args, folder);
  config.version = SKIFF_VERSION;
  config.policy.trust_chat_template = args.on("trust-request-chat-template");
  config.policy.shared_cache = args.on("share-cache-between-keys");
  config.reasoning_content = args.text("reasoning-field") != "reasoning";
  config.reasoning = args.text("reasoning-field") != "reasoning_content";
  config.web_page = args.on("webui");
  apply_edge_flags(args, &config);
  return config;
}

std::string url(const Args& args, uint16_t port) {
  std::string host = args.text("host");
  if (http::is_wildcard(host)) host = "127.0.0.1";
  if (host.find(':') != std::string::npos && host.front() != '[') host = "[" + host + "]";
  return fmt::format("{}://{}:{}", args.given("ssl-certfile") ? "https" : "http", host, port);
}

// Returns the route and the body of a request that the model can answer, to show as an example.
std::pair<const char*, const char*> example_of(const service::PooledModel* model) {
  using Task = service::PooledModel::Task;
  if (model == nullptr)
    return {"chat/completions",
            R"({"messages": [{"role": "user", "content": "What is the capital of France?"}]})"};
  if (model->task == Task::kEmbed)
    return {"embeddings", R"({"input": "What is the capital of France?"})"};
  if (model->scores_pairs())
    return {"rerank",
            R"({"query": "What is the capital of France?", "documents": ["Paris", "Bread"]})"};
  return {"classify", R"({"input": "What is the capital of France?"})"};
}

void say_ready(const Args& args, uint16_t port, bool wants_key, const std::string& model,
               const service::PooledModel* pooled) {
  const std::string at = url(args, port);
  const auto [route, body] = example_of(pooled);
  fmt::print(
      "\nServing {} on {} (Ctrl-C stops). {}:\n\n"
      "curl {}/v1/{} {}-H 'Content-Type: application/json' -d '{}'\n",
      model, at, args.on("webui") ? "Open it in a browser, or try it here" : "Try it", at, route,
      wants_key ? "-H \"Authorization: Bearer $KEY\" " : "", body);
  std::fflush(stdout);
  notify(notify_socket(), fmt::format("READY=1\nSTATUS=Serving {} on {}", model, at));
}

void warn_about_host(const Args& args, bool wants_key) {
  if (http::is_wildcard(args.text("host")) && !wants_key)
    spdlog::warn(
        "--host {} without an API key: whoever reaches this port may use the model; give "
        "--api-key-file, or --host 127.0.0.1 for this machine alone",
        args.text("host"));
}

// Reports the progress of loading weights to the terminal and to /health.
Progress loading_progress(const Args& args, serve::Server& server) {
  Progress bar = make_progress_bar(args.text("log-format") == "json" ? "" : "loading weights");
  return [bar = std::move(bar), &server](uint64_t done, uint64_t total) {
    bar(done, total);
    server.set_loaded(total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total));
  };
}

// The format's name, or null.
template <class Format>
OrderedJson name_of(const Format* format) {
  return format ? OrderedJson(std::string(format->name)) : OrderedJson();
}

// What a request gets that says nothing; null: as many tokens as the context leaves.
OrderedJson sampling_defaults(const model::GenerationDefaults& generation) {
  const service::SamplingDefaults defaults = defaults_of(generation);
  return {{"temperature", defaults.temperature},
          {"top_p", defaults.top_p},
          {"top_k", defaults.top_k},
          {"min_p", defaults.min_p},
          {"repetition_penalty", defaults.repetition},
          {"max_tokens", defaults.max_tokens > 0 ? OrderedJson(defaults.max_tokens) : nullptr}};
}

// All settings except secrets.
OrderedJson config_info(const Args& args, const engine::Llm& llm,
                        const answer::AnswerFormats& formats) {
  const engine::Resolved& engine = llm.resolved();
  OrderedJson parameters = OrderedJson::object();
  for (const FlagGroup& group : flag_groups())
    for (const Flag& flag : group.flags)
      if (flag.standing == Standing::kApplied && (flag.commands & kServe) != 0 &&
          flag.name != "api-key" && flag.name != "admin-key" && flag.name != "scheduler-password")
        parameters[std::string(flag.name)] = args.text(flag.name);
  return {{"version", SKIFF_VERSION},
          {"model", engine.model.folder},
          {"architecture", llm.model().spec.arch},
          {"runner", llm.model().pooling ? "pooling" : "generate"},
          {"device", engine::name(engine.device)},
          {"dtype", name(engine.precision.act)},
          {"data_parallel_size", engine.replicas},
          {"max_model_len", engine.limits.max_context},
          {"max_num_seqs", engine.limits.max_seqs},
          {"max_num_batched_tokens", engine.limits.max_rows},
          {"block_size", engine.cache.block_size},
          {"num_blocks", llm.memory().blocks},
          {"threads", engine.threads},
          {"reasoning_format", name_of(formats.reasoning)},
          {"tool_call_format", name_of(formats.calls)},
          {"sampling_defaults", sampling_defaults(llm.model().generation)},
          {"parameters", std::move(parameters)}};
}

Status reload_keys(const Args& args, serve::Server& server) {
  const auto keys = api_keys(args);
  if (!keys) return keys.error();
  const auto control = admin_keys(args, *keys);
  if (!control) return control.error();
  const Status done = server.reload(*keys, *control);
  if (done)
    spdlog::info("SIGHUP: {} API keys, {} admin keys and the TLS files are in use as they are now",
                 keys->size(), control->size());
  return done;
}

// Carries out SIGHUP: reads keys and TLS files again, and opens the request log again, which may
// have been renamed.
void reload(const Args& args, serve::Server& server, journal::Journal* journal) {
  if (const Status done = reload_keys(args, server); !done)
    spdlog::error("SIGHUP: nothing was changed: {}", done.error().what);
  if (journal) journal->reopen();
}

void serve_until_signal(const Args& args, serve::Server& server, journal::Journal* journal,
                        SignalGuard& guard) {
  while (guard.next() == SIGHUP) reload(args, server, journal);
}

// The first signal lets replies finish, the second cuts them off (see SignalGuard).
bool drain(const Args& args, serve::Server& server, engine::Llm& llm, SignalGuard& guard) {
  const auto seconds = static_cast<double>(args.integer("timeout-graceful-shutdown"));
  spdlog::info("stopping: finishing replies for up to {} s; a second signal cuts them off",
               seconds);
  notify(notify_socket(), "STOPPING=1\nSTATUS=finishing replies");
  const bool hands_out = llm.resolved().cache.peers.role == peer::Role::kPrefill;
  llm.begin_drain();
  const bool clean =
      server.drain(seconds, [&] { return !hands_out || llm.stats().peers.leases == 0; });
  if (!clean) guard.end_within(kMaxStopping);
  return clean;
}

// The kernel refuses connections beyond the open-file limit silently, so the log says so at
// start-up.
void fit_open_files(http::HttpConfig* http) {
  const uint64_t limit = raise_open_file_limit();
  const int fit = connections_that_fit(http->max_connections, http->max_probe_connections, limit);
  if (fit < http->max_connections)
    spdlog::warn(
        "--max-connections {} does not fit the open-file limit of {}: {} connections are taken; "
        "raise the limit with ulimit -n",
        http->max_connections, limit, fit);
  http->max_connections = fit;
}

// Said before weights are loaded.
void need_residency(const engine::Resolved& resolved) {
  const Status good = engine::Residency::supported(resolved);
  if (!good) fail_load("--dynamic-load-weight: {}", good.error().what);
}

// What can be told before the model is loaded.
void check_upkeep(const Args& args, const NodePlan& plan, const peer::Settings& peers) {
  if (!args.on("dynamic-load-weight")) return;
  if (!args.given("admin-key") && !args.given("admin-key-file"))
    throw UsageError(
        "--dynamic-load-weight needs --admin-key or --admin-key-file: its endpoints are the "
        "operator's");
  engine::Resolved resolved;
  resolved.device = engine::device_named(args.text("device"));
  resolved.nodes.nodes = plan.nodes.nodes;
  resolved.cache.peers = peers;
  need_residency(resolved);
}

// Another node that fails while this one starts ends it, too.
std::unique_ptr<engine::Llm> started(const engine::EngineConfig& config,
                                     const std::shared_ptr<service::EventQueue>& events) {
  try {
    return engine::Llm::start(
        config, [events](std::vector<Event> batch) { events->push(std::move(batch)); });
  } catch (const comm::GroupEnded& ended) {
    config.failed(ended.what());
    throw;
  }
}

}  // namespace

int run_serve(const Args& args) {
  bound_heaps();
  catch_signals_while_starting();
  check_admission_flags(args);
  NodePlan plan = node_plan(args);
  const peer::Settings peers = splitting_settings(args);
  check_upkeep(args, plan, peers);
  check_router(args);
  const PortPlan ports = port_plan(args, plan.replicas);
  const std::string folder = model_folder(args);
  if (plan.nodes.nodes > 1) {
    const std::shared_ptr<const text::Tokenizer> tokenizer = need_tokenizer(args, folder);
    plan.nodes.facts = drawing_facts(args, *tokenizer);
    if (plan.nodes.node > 0) return run_node(args, folder, std::move(plan.nodes), *tokenizer);
  }
  std::optional<SharedQueueSettings> sharing =
      queue_settings(args, model_names(args, folder).front());
  serve::ServerConfig config = server_config(args, folder, ports);
  const bool wants_key = !config.api_keys.empty();
  const std::shared_ptr<journal::Journal> journal = make_journal(args);
  config.journal = journal;
  fit_open_files(&config.http);
  std::shared_ptr<const text::Tokenizer> tokenizer = need_tokenizer(args, folder);
  std::shared_ptr<const text::ChatTemplate> chat = find_chat_template(args, folder);
  if (!chat) spdlog::warn("{} has no chat template: chat completions will be refused", folder);
  config.paddle.chat_template = chat != nullptr;

  const answer::AnswerFormats formats = answer_formats(args, chat.get());
  // The port is bound first: probes get an answer while weights load, and a port in use is found at
  // once.
  auto server = std::make_unique<serve::Server>(std::move(config));
  server->start();
  log_ports(ports, args.text("host"), server->ports());
  if (server->grpc_port() != 0)
    spdlog::info("gRPC on {} port {}", args.text("host"), server->grpc_port());
  warn_about_host(args, wants_key);

  auto events = std::make_shared<service::EventQueue>();
  engine::EngineConfig engine = engine_config(args, folder);
  engine.replicas = plan.replicas;
  engine.nodes = plan.nodes;
  engine.progress = notifying(loading_progress(args, *server));
  engine.failed = failure_hook(*server);
  const double limit = args.number("watchdog-timeout");
  // A disk that hangs must not look like an engine that does.
  if (limit > 0) engine.storage_wait = std::min(engine.storage_wait, limit / 4);
  engine.peers = peers;
  if (limit > 0) engine.peers.wait_seconds = std::min(engine.peers.wait_seconds, limit / 4);
  const auto llm = started(engine, events);
  service::LlmPort port(*llm);
  service::ServiceConfig served =
      service_config(args, model_names(args, folder).front(), *llm, *tokenizer, formats);
  if (ports.for_each_replica()) served.replicas_apart = plan.replicas;
  service::EngineService service(std::move(served), port, events, tokenizer, chat, journal);
  catch_signals();
  std::optional<SignalGuard> guard;
  guard.emplace(kExitCutOff, [&server = *server] { server.force(); });
  const HeapTrimmer trimmer;
  std::optional<engine::Residency> residency;
  std::optional<service::Upkeep> upkeep;
  if (args.on("dynamic-load-weight")) {
    need_residency(llm->resolved());
    upkeep.emplace(residency.emplace(llm->memories()), service.door());
  }
  if (sharing) {
    sharing->config.max_running = llm->resolved().limits.max_seqs * llm->resolved().replicas;
    server->share(std::move(sharing->config), std::move(sharing->store));
  }
  server->open(service, config_info(args, *llm, formats), upkeep ? &*upkeep : nullptr);
  say_ready(args, server->port(), wants_key, model_names(args, folder).front(),
            service.pooled_model());
  std::list<route::Announcer> announcers;
  for (route::AnnouncerSettings& settings :
       router_settings(args, announced_ports(ports, server->ports()), llm->stats().peers.port))
    announcers.emplace_back(std::move(settings));
  std::optional<engine::Watchdog> watchdog;
  if (limit > 0) watchdog.emplace(limit, stall_hooks(*llm, *server, limit));

  serve_until_signal(args, *server, journal.get(), *guard);
  announcers.clear();
  const bool clean = drain(args, *server, *llm, *guard);
  server->stop();
  service.stop();
  llm->stop(
      /*drain=*/clean);  // when all replies are done, only writes to the cache's file are left
  watchdog.reset();      // it also guards the shutdown up to here
  guard.reset();
  server.reset();
  if (journal) journal->stop();
  spdlog::info("stopped{}", clean ? "" : "; some replies were cut off");
  return clean ? 0 : kExitCutOff;
}

}  // namespace skiff::apps
