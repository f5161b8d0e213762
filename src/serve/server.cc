#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/load_error.h"
#include "serve/control/routes.h"
#include "serve/grpc_port.h"
#include "serve/http/access_log.h"
#include "serve/http/api_error.h"
#include "serve/http/api_keys.h"
#include "serve/http/cors.h"
#include "serve/http/host_list.h"
#include "serve/http/route_table.h"
#include "serve/info_routes.h"
#include "serve/messages/routes.h"
#include "serve/ollama/routes.h"
#include "serve/openai/routes.h"
#include "serve/paddle/legacy_form.h"
#include "serve/page/page.h"
#include "serve/pooling/routes.h"
#include "serve/probes.h"
#include "serve/responses/routes.h"
#include "serve/server_context.h"

namespace skiff::serve {
namespace {

using Clock = std::chrono::steady_clock;

// What is known of the model from what /config-info tells.
ollama::ModelCard card_of(const ServerConfig& config) {
  const auto text = [&](const OrderedJson& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_string()
               ? found->get<std::string>()
               : std::string();
  };
  const OrderedJson& info = config.config_info;
  const OrderedJson parameters =
      info.is_object() && info.contains("parameters") ? info["parameters"] : OrderedJson();
  return {.architecture = text(info, "architecture"),
          .dtype = text(info, "dtype"),
          .quantization = text(parameters, "quantization"),
          .version = config.version,
          .calls = !text(info, "tool_call_format").empty(),
          .thinks = !text(info, "reasoning_format").empty()};
}

std::vector<http::Route> all_routes(ServerContext& context, const http::ApiKeys& keys,
                                    bool controlled, service::Upkeep* upkeep) {
  std::vector<http::Route> routes;
  service::ProtocolContext& protocol = *context.protocol;
  for (auto& part :
       {openai::openai_routes(protocol, keys,
                              paddle::legacy_form(protocol, keys, context.config.paddle)),
        openai::tokenize_routes(protocol), messages::messages_routes(protocol, keys),
        responses::responses_routes(protocol, keys), pooling::pooling_routes(protocol, keys),
        probe_routes(context)})
    routes.insert(routes.end(), part.begin(), part.end());
  if (controlled)
    for (http::Route& route : control::control_routes(protocol, upkeep))
      routes.push_back(std::move(route));
  for (http::Route& route : info_routes(context, routes)) routes.push_back(std::move(route));
  if (context.config.web_page) routes.push_back(page::page_route());
  // These come last: their "/" is for those clients that no other route has a page for.
  for (http::Route& route : ollama::ollama_routes(protocol, keys, card_of(context.config)))
    routes.push_back(std::move(route));
  return routes;
}

// While the model loads, the page is there already and shows the progress of /health.
std::vector<http::Route> first_routes(const ServerConfig& config,
                                      std::function<std::string()> progress) {
  std::vector<http::Route> routes = boot_routes(std::move(progress));
  if (config.web_page) routes.push_back(page::page_route());
  return routes;
}

http::CorsConfig cors_of(const ServerConfig& config) {
  http::CorsConfig cors{.origins = config.cors_origins,
                        .methods = config.cors_methods,
                        .headers = config.cors_headers,
                        .credentials = config.cors_credentials};
  if (const Status good = http::check_cors(cors); !good) throw LoadError(good.error().what);
  return cors;
}

// What the shared queue asks about this instance.
queue::Capacity capacity_of(const service::ProtocolContext& protocol, int max_running) {
  const service::ServiceLoad load = protocol.service.load();
  const int busy =
      std::max(static_cast<int>(protocol.generations.all().size()), load.running + load.waiting);
  return {.load = busy,
          .room = load.waiting > 0 ? 0 : max_running - busy,
          .serves = !protocol.admission.draining() && protocol.service.health()};
}

// The routes of one time of the server's life. A request keeps those that it came to.
struct ActiveRoutes {
  std::shared_ptr<ServerContext> context;  // null while loading
  http::RouteTable table;
  http::RouteTable observing;  // routes of the ports that are for nothing else
};

}  // namespace

struct Server::Impl {
  explicit Impl(ServerConfig given)
      : config(std::move(given)),
        keys(config.api_keys),
        admin_keys(config.admin_keys),
        cors(cors_of(config)),
        hosts(config.http.host, config.allowed_hosts),
        routes(std::make_shared<ActiveRoutes>(
            ActiveRoutes{nullptr,
                         http::RouteTable(first_routes(config, [this] { return progress(); }),
                                          guard(/*loading=*/true)),
                         http::RouteTable(boot_routes([this] { return progress(); }),
                                          guard(/*loading=*/true))})),
        http(config.http, hooks()),
        grpc(open_grpc_port(
            config, keys, [this] { return current()->context; }, [this] { return progress(); })) {}

  http::Guard guard(bool loading);
  http::HttpHooks hooks();
  std::optional<http::HttpResponse> refuse(const http::HttpRequest& request);
  std::string progress() const;
  std::shared_ptr<ActiveRoutes> current() const {
    std::lock_guard lock(mutex);
    return routes;
  }
  std::vector<std::shared_ptr<service::OpenGeneration>> generations() const {
    const auto now = current();
    if (!now->context) return {};
    return now->context->protocol->generations.all();
  }
  std::shared_ptr<queue::SharedQueue> shared_queue() const {
    const auto now = current();
    return now->context ? now->context->queue : nullptr;
  }
  PortUse use_of(const http::HttpRequest& request) const {
    return request.door < config.port_uses.size() ? config.port_uses[request.door] : PortUse{};
  }
  const http::RouteTable& table_of(const ActiveRoutes& now,
                                   const http::HttpRequest& request) const {
    return use_of(request).observes ? now.observing : now.table;
  }
  void begin_drain();
  void cut_off(service::CutOff why);
  bool replied() const {
    return http.open_requests() == 0 && (!grpc || grpc->open_requests() == 0);
  }
  void tick_until_stopped();
  std::vector<http::Route> routes_of(ServerContext& context, service::Upkeep* upkeep);

  ServerConfig config;  // not changed after open()
  http::ApiKeys keys, admin_keys;
  const http::Cors cors;
  const http::HostList hosts;
  std::atomic<double> loaded{0};
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::shared_ptr<ActiveRoutes> routes;  // guarded by mutex
  http::HttpServer http;
  const std::unique_ptr<grpc::GrpcServer> grpc;  // null without a port
  std::condition_variable changed;
  bool stopped = false;  // guarded by mutex
  std::atomic<bool> forced{false};
  std::thread ticker;
  std::optional<queue::QueueConfig> sharing;  // with `store`; set before open()
  std::unique_ptr<queue::Store> store;
};

std::string Server::Impl::progress() const {
  return fmt::format("the model is loading, {:.0f}% done", 100 * loaded);
}

// Without a key nothing of the server's state is visible but the probes. These answer under any
// host name, because orchestrators call by address. The web page is no state: everybody who knows
// the server's name may load it, at any time.
http::Guard Server::Impl::guard(bool loading) {
  return [this, loading](const http::HttpRequest& request,
                         http::Access access) -> std::optional<http::HttpResponse> {
    if (access == http::Access::kOpen) return std::nullopt;
    if (auto refused = hosts.refuse(request)) return refused;
    const bool controls = access == http::Access::kAdmin;
    if (access != http::Access::kPublic)
      if (auto refused = (controls ? admin_keys : keys).refuse(request)) return refused;
    if (auto refused = cors.refuse(request)) return refused;
    if (access == http::Access::kPublic) return std::nullopt;
    if (loading) return unavailable(progress());
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (draining && !reads && !controls) {
      current()->context->protocol->service.refused(service::Refusal::kStopping);
      return unavailable("the server is shutting down");
    }
    return std::nullopt;
  };
}

// Returns a refusal where none of the request's body has to be parsed for it.
std::optional<http::HttpResponse> Server::Impl::refuse(const http::HttpRequest& request) {
  if (auto preflight = cors.preflight(request)) return preflight;
  const auto now = current();
  const http::RouteTable& table = table_of(*now, request);
  if (auto refused = table.refuse(request)) return refused;
  auto full = table.refuse_when_full(request);
  if (full && config.journal) config.journal->arrived(request);
  return full;
}

http::HttpHooks Server::Impl::hooks() {
  http::HttpHooks hooks;
  hooks.handler = [this](http::HttpRequest request, std::shared_ptr<http::HttpReply> reply) {
    if (config.journal) config.journal->arrived(request);
    request.replica = use_of(request).replica;
    const auto now = current();
    const http::RouteTable& table = table_of(*now, request);
    table.dispatch(std::move(request), std::move(reply));
  };
  hooks.failure = [](int status, const std::string& why) {
    return status == 503 ? unavailable(why) : http::error_response(http::api_error(status, why));
  };
  hooks.early = [this](const http::HttpRequest& request) {
    auto preflight = cors.preflight(request);
    return preflight ? preflight : table_of(*current(), request).refuse(request);
  };
  hooks.refuse = [this](const http::HttpRequest& request) { return refuse(request); };
  hooks.lane = [this](const http::HttpRequest& request) {
    return table_of(*current(), request).lane(request);
  };
  hooks.headers = [this](const http::HttpRequest& request) {
    http::HttpHeaders all = cors.headers(request);
    for (auto& header : messages::messages_headers(request)) all.push_back(std::move(header));
    return all;
  };
  hooks.record = [journal = config.journal,
                  log = config.access_log](const http::HttpRecord& record) {
    if (log) http::log_access(record);
    if (journal) journal->replied(record);
  };
  return hooks;
}

void Server::Impl::begin_drain() {
  draining = true;
  if (const auto now = current(); now->context) now->context->protocol->admission.begin_drain();
  http.begin_drain();
  if (const auto queue = shared_queue()) queue->begin_drain();
}

void Server::Impl::cut_off(service::CutOff why) {
  for (auto& generation : generations()) generation->cut_off(why);
  if (const auto queue = shared_queue()) queue->cut_off();
}

// With the shared queue before the handlers, where there is one.
std::vector<http::Route> Server::Impl::routes_of(ServerContext& context, service::Upkeep* upkeep) {
  std::vector<http::Route> routes = all_routes(context, keys, admin_keys.any(), upkeep);
  if (!sharing) return routes;
  context.queue = std::make_shared<queue::SharedQueue>(
      *sharing, std::move(store),
      queue::QueueHooks{
          .capacity = [protocol = context.protocol,
                       max = sharing->max_running] { return capacity_of(*protocol, max); },
          .cache_part =
              [this](const http::HttpRequest& request) { return keys.cache_salt(request); }});
  return context.queue->share(std::move(routes));
}

void Server::Impl::tick_until_stopped() {
  const double idle = std::clamp(config.stream_idle_seconds / 4, 0.01, 1.0);
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, std::chrono::duration<double>(idle), [this] { return stopped; })) {
    lock.unlock();
    for (auto& generation : generations()) generation->tick();
    if (grpc) grpc->tick();
    lock.lock();
  }
}

Server::Server(ServerConfig config) {
  SKIFF_CHECK(!config.model_names.empty());
  impl_ = std::make_unique<Impl>(std::move(config));
}

Server::Server(ServerConfig config, service::Service& service) : Server(std::move(config)) {
  open(service);
}

Server::~Server() { stop(); }

uint16_t Server::port() const { return impl_->http.port(); }

std::vector<uint16_t> Server::ports() const { return impl_->http.ports(); }

uint16_t Server::grpc_port() const { return impl_->grpc ? impl_->grpc->port() : 0; }

void Server::set_loaded(double part) { impl_->loaded = part; }

void Server::share(queue::QueueConfig config, std::unique_ptr<queue::Store> store) {
  impl_->sharing = std::move(config);
  impl_->store = std::move(store);
}

void Server::open(service::Service& service, OrderedJson config_info, service::Upkeep* upkeep) {
  ServerConfig config = impl_->config;
  if (!config_info.is_null()) config.config_info = std::move(config_info);
  auto protocol = std::make_shared<service::ProtocolContext>(config, service, std::time(nullptr));
  protocol->aside = [http = &impl_->http](auto job) { http->aside(std::move(job)); };
  auto context = std::make_shared<ServerContext>(std::move(config), std::move(protocol));
  http::RouteTable table(impl_->routes_of(*context, upkeep), impl_->guard(/*loading=*/false));
  http::RouteTable observing(observing_routes(*context), impl_->guard(/*loading=*/false));
  const std::shared_ptr<queue::SharedQueue> queue = context->queue;
  auto routes = std::make_shared<ActiveRoutes>(
      ActiveRoutes{std::move(context), std::move(table), std::move(observing)});
  std::lock_guard lock(impl_->mutex);
  SKIFF_CHECK(!impl_->routes->context, "a server is opened once");
  impl_->routes = std::move(routes);
  if (queue) queue->start();
}

Status Server::reload(const std::vector<std::string>& api_keys,
                      const std::vector<std::string>& admin_keys) {
  if (admin_keys.empty() && impl_->admin_keys.any())
    return Error{Code::kInvalid,
                 "no admin key is left, which would open the control endpoints to everybody",
                 "admin-key-file"};
  if (api_keys.empty() && impl_->keys.any())
    return Error{Code::kInvalid, "no API key is left, which would open the server to everybody",
                 "api-key-file"};
  if (const Status tls = impl_->http.reload_tls(); !tls) return tls;
  impl_->keys.set(api_keys);
  if (impl_->admin_keys.any()) impl_->admin_keys.set(admin_keys);
  return ok();
}

void Server::start() {
  impl_->http.start();
  impl_->ticker = std::thread([impl = impl_.get()] { impl->tick_until_stopped(); });
}

bool Server::drain(double seconds, const std::function<bool()>& others_done) {
  impl_->begin_drain();
  const auto queue = impl_->shared_queue();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto finished = [&] {
    return impl_->replied() && (!queue || queue->open() == 0) && (!others_done || others_done());
  };
  std::unique_lock lock(impl_->mutex);
  while (!finished() && !impl_->forced && Clock::now() < end)
    impl_->changed.wait_for(lock, std::chrono::milliseconds(20));
  lock.unlock();
  if (finished()) return true;
  impl_->cut_off(service::CutOff::kStopping);
  // The errors of these replies still have to be sent.
  for (int i = 0; i < 50 && !finished(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return false;
}

void Server::set_stalled(bool stalled) {
  if (const auto now = impl_->current(); now->context) now->context->stalled = stalled;
}

// A request that arrived just before may register its generation after others were cut off, so this
// is done until all have ended.
void Server::fail(double seconds) {
  const auto queue = impl_->shared_queue();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  if (queue) queue->fail();
  impl_->begin_drain();
  const auto finished = [&] { return impl_->replied() && (!queue || queue->unsent() == 0); };
  do {
    impl_->cut_off(service::CutOff::kEngineFailed);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (!finished() && Clock::now() < end);
}

// Takes no lock, because a thread that hangs may hold it. drain() polls the flag every few
// milliseconds.
void Server::force() { impl_->forced = true; }

void Server::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
  }
  impl_->changed.notify_all();
  impl_->begin_drain();
  impl_->cut_off(service::CutOff::kStopping);
  impl_->http.stop();
  if (impl_->grpc) impl_->grpc->stop();
  // A handler may have started a generation between the two statements above.
  impl_->cut_off(service::CutOff::kStopping);
  if (const auto queue = impl_->shared_queue()) queue->stop();
  if (impl_->ticker.joinable()) impl_->ticker.join();
}

}  // namespace skiff::serve
