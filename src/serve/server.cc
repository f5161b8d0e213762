#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/load_error.h"
#include "serve/front.h"
#include "serve/http/access_log.h"
#include "serve/http/api_error.h"
#include "serve/http/api_keys.h"
#include "serve/http/host_list.h"
#include "serve/protocols.h"
#include "serve/service/overload.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

// While loading or draining; long enough for another server to be asked first.
constexpr int kRetrySeconds = 5;

std::vector<Route> all_routes(Front& front) {
  std::vector<Route> routes;
  for (auto& protocol : {openai_routes(front), tokenize_routes(front), probe_routes(front)})
    routes.insert(routes.end(), protocol.begin(), protocol.end());
  for (Route& route : info_routes(front, routes)) routes.push_back(std::move(route));
  return routes;
}

CorsConfig cors_of(const ServerConfig& config) {
  CorsConfig cors{.origins = config.cors_origins,
                  .methods = config.cors_methods,
                  .headers = config.cors_headers,
                  .credentials = config.cors_credentials};
  if (const Status good = check_cors(cors); !good) throw LoadError(good.error().what);
  return cors;
}

// What answers at one time of the server's life. A request keeps the one that it came to.
struct Site {
  std::shared_ptr<Front> front;  // null while loading
  Router router;
};

}  // namespace

struct Server::Impl {
  explicit Impl(ServerConfig given)
      : config(std::move(given)),
        keys(config.api_keys),
        cors(cors_of(config)),
        hosts(config.http.host, config.allowed_hosts),
        site(std::make_shared<Site>(Site{
            nullptr, Router(boot_routes([this] { return progress(); }), guard(/*loading=*/true))})),
        http(config.http, hooks()) {}

  Guard guard(bool loading);
  HttpHooks hooks();
  std::optional<HttpResponse> refuse(const HttpRequest& request);
  std::string progress() const;
  std::shared_ptr<Site> current() const {
    std::lock_guard lock(mutex);
    return site;
  }
  std::vector<std::shared_ptr<Running>> generations() const {
    const auto now = current();
    return now->front ? now->front->gate.all() : std::vector<std::shared_ptr<Running>>{};
  }
  void begin_drain();
  void tick_until_stopped();

  ServerConfig config;  // not changed after open()
  ApiKeys keys;
  const Cors cors;
  const HostList hosts;
  std::atomic<double> loaded{0};
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::shared_ptr<Site> site;  // guarded by mutex
  HttpServer http;
  std::condition_variable changed;
  bool stopped = false;  // guarded by mutex
  std::atomic<bool> forced{false};
  std::thread ticker;
};

std::string Server::Impl::progress() const {
  return fmt::format("the model is loading, {:.0f}% done", 100 * loaded);
}

// A stranger learns nothing of the server's state but what the probes tell, and these answer to any
// name: orchestrators call by address.
Guard Server::Impl::guard(bool loading) {
  return [this, loading](const HttpRequest& request, Access access) -> std::optional<HttpResponse> {
    if (access == Access::kOpen) return std::nullopt;
    if (auto refused = hosts.refuse(request)) return refused;
    if (auto refused = keys.refuse(request)) return refused;
    if (auto refused = cors.refuse(request)) return refused;
    if (loading) return unavailable(progress(), kRetrySeconds);
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (draining && !reads) {
      current()->front->service.refused(Refusal::kStopping);
      return unavailable("the server is shutting down", kRetrySeconds);
    }
    return std::nullopt;
  };
}

// All that can be said without reading a request's text.
std::optional<HttpResponse> Server::Impl::refuse(const HttpRequest& request) {
  if (auto preflight = cors.preflight(request)) return preflight;
  const auto now = current();
  if (auto refused = now->router.refuse(request)) return refused;
  if (!now->front || !now->router.generates(request)) return std::nullopt;
  const auto full = refuse_when_full(*now->front);
  return full ? std::optional(error_response(*full)) : std::nullopt;
}

HttpHooks Server::Impl::hooks() {
  HttpHooks hooks;
  hooks.handler = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    current()->router.dispatch(std::move(request), std::move(reply));
  };
  hooks.failure = [](int status, const std::string& why) {
    return status == 503 ? unavailable(why, kRetrySeconds) : error_response(api_error(status, why));
  };
  hooks.early = [this](const HttpRequest& request) {
    auto preflight = cors.preflight(request);
    return preflight ? preflight : current()->router.refuse(request);
  };
  hooks.refuse = [this](const HttpRequest& request) { return refuse(request); };
  hooks.lane = [this](const HttpRequest& request) { return current()->router.lane(request); };
  hooks.headers = [this](const HttpRequest& request) { return cors.headers(request); };
  if (config.access_log) hooks.record = log_access;
  return hooks;
}

void Server::Impl::begin_drain() {
  draining = true;
  if (const auto now = current(); now->front) now->front->gate.draining = true;
  http.begin_drain();
}

void Server::Impl::tick_until_stopped() {
  const double idle = std::clamp(config.stream_idle_seconds / 4, 0.01, 1.0);
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, std::chrono::duration<double>(idle), [this] { return stopped; })) {
    lock.unlock();
    for (auto& running : generations()) running->tick();
    lock.lock();
  }
}

Server::Server(ServerConfig config) {
  SKIFF_CHECK(!config.model_names.empty());
  impl_ = std::make_unique<Impl>(std::move(config));
}

Server::Server(ServerConfig config, Service& service) : Server(std::move(config)) { open(service); }

Server::~Server() { stop(); }

uint16_t Server::port() const { return impl_->http.port(); }

void Server::set_loaded(double part) { impl_->loaded = part; }

void Server::open(Service& service, OrderedJson config_info) {
  ServerConfig config = impl_->config;
  if (!config_info.is_null()) config.config_info = std::move(config_info);
  auto front = std::make_shared<Front>(std::move(config), service, std::time(nullptr));
  front->keys = &impl_->keys;
  Router router(all_routes(*front), impl_->guard(/*loading=*/false));
  auto site = std::make_shared<Site>(Site{std::move(front), std::move(router)});
  std::lock_guard lock(impl_->mutex);
  SKIFF_CHECK(!impl_->site->front, "a server is opened once");
  impl_->site = std::move(site);
}

Status Server::reload(const std::vector<std::string>& api_keys) {
  if (api_keys.empty() && impl_->keys.any())
    return Error{Code::kInvalid, "no API key is left, which would open the server to everybody",
                 "api-key-file"};
  if (const Status tls = impl_->http.reload_tls(); !tls) return tls;
  impl_->keys.set(api_keys);
  return ok();
}

void Server::start() {
  impl_->http.start();
  impl_->ticker = std::thread([impl = impl_.get()] { impl->tick_until_stopped(); });
}

bool Server::drain(double seconds) {
  impl_->begin_drain();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto finished = [this] { return impl_->http.open_requests() == 0; };
  std::unique_lock lock(impl_->mutex);
  while (!finished() && !impl_->forced && Clock::now() < end)
    impl_->changed.wait_for(lock, std::chrono::milliseconds(20));
  lock.unlock();
  if (finished()) return true;
  for (auto& running : impl_->generations()) running->cut_off();
  // The last words still have to leave.
  for (int i = 0; i < 50 && !finished(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return false;
}

void Server::set_stalled(bool stalled) {
  if (const auto now = impl_->current(); now->front) now->front->gate.stalled = stalled;
}

// Takes no lock: somebody who hangs may hold it. drain() looks every few milliseconds.
void Server::force() { impl_->forced = true; }

void Server::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
  }
  impl_->changed.notify_all();
  impl_->begin_drain();
  for (auto& running : impl_->generations()) running->cut_off();
  impl_->http.stop();
  // A handler may have got through between the two lines above.
  for (auto& running : impl_->generations()) running->cut_off();
  if (impl_->ticker.joinable()) impl_->ticker.join();
}

}  // namespace skiff
