#include "route/router.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/load_error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "route/core.h"
#include "route/prober.h"
#include "route/relay.h"
#include "route/routes.h"
#include "serve/http/access_log.h"
#include "serve/http/api_error.h"
#include "serve/http/api_keys.h"
#include "serve/http/head.h"
#include "serve/http/host_list.h"
#include "serve/http/route_table.h"

namespace skiff::route {
namespace {

// Bodies of up to this many bytes are read on the I/O thread, larger ones on a worker.
constexpr size_t kSmallBody = 64 << 10;
constexpr std::chrono::seconds kTick{1};

http::CorsConfig checked(const http::CorsConfig& cors) {
  if (const Status good = http::check_cors(cors); !good) throw LoadError(good.error().what);
  return cors;
}

}  // namespace

struct Router::Impl {
  explicit Impl(RouterConfig config)
      : core(std::move(config)),
        keys(core.config.api_keys),
        admin_keys(core.config.admin_keys),
        cors(checked(core.config.cors)),
        hosts(core.config.http.host, core.config.allowed_hosts),
        prober(core),
        ticker(core.io),
        table(router_routes(core, prober), guard()),
        http(core.config.http, hooks()) {}

  http::Guard guard();
  http::HttpHooks hooks();
  std::optional<http::HttpResponse> refuse(const http::HttpRequest& request);
  http::HttpLane lane(const http::HttpRequest& request) const;
  std::optional<http::HttpResponse> refuse_stranger(const http::HttpRequest& request,
                                                    http::Access access) const;
  void tick();
  void cut_off_all(const std::string& why);

  RouterCore core;
  http::ApiKeys keys, admin_keys;
  const http::Cors cors;
  const http::HostList hosts;
  Prober prober;
  net::steady_timer ticker;
  const http::RouteTable table;
  http::HttpServer http;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> forced{false}, refusing{false};
  bool stopped = false;
};

std::optional<http::HttpResponse> Router::Impl::refuse_stranger(const http::HttpRequest& request,
                                                                http::Access access) const {
  if (access != http::Access::kAdmin) return keys.refuse(request);
  if (admin_keys.any()) return admin_keys.refuse(request);
  if (core.config.open_registration) return std::nullopt;
  return refusal(
      403, "this is for those with an admin key, and the router was started without --admin-key");
}

http::Guard Router::Impl::guard() {
  return [this](const http::HttpRequest& request,
                http::Access access) -> std::optional<http::HttpResponse> {
    if (access == http::Access::kOpen) return std::nullopt;
    if (auto refused = hosts.refuse(request)) return refused;
    if (auto refused = refuse_stranger(request, access)) return refused;
    if (auto refused = cors.refuse(request)) return refused;
    if (refusing && access == http::Access::kKey && http::has_content(request.method))
      return refusal(503, "the router is shutting down");
    return std::nullopt;
  };
}

std::optional<http::HttpResponse> Router::Impl::refuse(const http::HttpRequest& request) {
  if (auto preflight = cors.preflight(request)) return preflight;
  if (auto refused = table.refuse(request)) return refused;
  return table.refuse_when_full(request);
}

// What is passed on needs no worker unless its body is large. Before the body is there a request
// that has one is no probe, so that a probe connection does not take it.
http::HttpLane Router::Impl::lane(const http::HttpRequest& request) const {
  const http::HttpLane lane = table.lane(request);
  if (lane == http::HttpLane::kIo || request.body.empty()) return lane;
  return request.body.size() <= kSmallBody ? http::HttpLane::kIo : http::HttpLane::kWork;
}

http::HttpHooks Router::Impl::hooks() {
  http::HttpHooks hooks;
  hooks.handler = [this](http::HttpRequest request, std::shared_ptr<http::HttpReply> reply) {
    table.dispatch(std::move(request), std::move(reply));
  };
  hooks.failure = refusal;
  hooks.early = [this](const http::HttpRequest& request) {
    auto preflight = cors.preflight(request);
    return preflight ? preflight : table.refuse(request);
  };
  hooks.refuse = [this](const http::HttpRequest& request) { return refuse(request); };
  hooks.lane = [this](const http::HttpRequest& request) { return lane(request); };
  hooks.headers = [this](const http::HttpRequest& request) { return cors.headers(request); };
  if (core.config.access_log) hooks.record = http::log_access;
  return hooks;
}

// Ends requests whose time is up, or whose backend hangs, and those waits that are in vain.
void Router::Impl::tick() {
  const auto now = Clock::now();
  const RouterConfig& config = core.config;
  std::vector<std::shared_ptr<Relay>> late, stalled, alone;
  for (Relay* relay : core.relays)
    if (config.request_seconds > 0 && seconds(now - relay->arrived()) > config.request_seconds)
      late.push_back(relay->shared_from_this());
    else if (config.stall_seconds > 0 && relay->silence(now) > config.stall_seconds)
      stalled.push_back(relay->shared_from_this());
    else if (relay->partner_is_down())
      alone.push_back(relay->shared_from_this());
  for (const auto& relay : late) relay->cut_off("the request took longer than the router allows");
  for (const auto& relay : stalled) relay->cut_off("the backend hangs");
  for (const auto& relay : alone) relay->go_on_alone();
  ticker.expires_after(kTick);
  ticker.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

void Router::Impl::cut_off_all(const std::string& why) {
  net::post(core.io, [this, why] {
    std::vector<std::shared_ptr<Relay>> open;
    open.reserve(core.relays.size());
    for (Relay* relay : core.relays) open.push_back(relay->shared_from_this());
    for (const auto& relay : open) relay->cut_off(why);
  });
}

Router::Router(RouterConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}

Router::~Router() { stop(); }  // NOLINT(bugprone-exception-escape)

uint16_t Router::port() const { return impl_->http.port(); }

void Router::start() {
  net::post(impl_->core.io, [impl = impl_.get()] {
    impl->prober.start();
    impl->tick();
  });
  impl_->thread = std::thread([impl = impl_.get()] {
    const auto work = net::make_work_guard(impl->core.io);
    for (;;) try {
        impl->core.io.run();
        return;
      } catch (const std::exception& e) {
        spdlog::error("the router goes on after: {}", escaped(e.what()));
      }
  });
  impl_->http.start();
}

Status Router::reload(const std::vector<std::string>& api_keys,
                      const std::vector<std::string>& admin_keys) {
  if ((api_keys.empty() && impl_->keys.any()) || (admin_keys.empty() && impl_->admin_keys.any()))
    return Error{Code::kInvalid, "no key is left, which would open the router to everybody",
                 "api-key-file"};
  if (const Status tls = impl_->http.reload_tls(); !tls) return tls;
  impl_->keys.set(api_keys);
  impl_->admin_keys.set(admin_keys);
  return ok();
}

bool Router::drain(double delay, double limit) {
  impl_->core.draining = true;
  const auto wait = [&](double length, const auto& over) {
    const auto end = Clock::now() + std::chrono::duration<double>(length);
    std::unique_lock lock(impl_->mutex);
    while (!impl_->forced && Clock::now() < end && !over())
      impl_->changed.wait_for(lock, std::chrono::milliseconds(20));
  };
  wait(delay, [] { return false; });
  impl_->refusing = true;
  impl_->http.begin_drain();
  const auto finished = [this] { return impl_->http.open_requests() == 0; };
  wait(limit, finished);
  if (finished()) return true;
  impl_->cut_off_all("the router is shutting down");
  for (int i = 0; i < 50 && !finished(); ++i)  // the errors still have to be sent
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return false;
}

void Router::force() { impl_->forced = true; }

void Router::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->http.stop();
  impl_->core.io.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  // What is left of requests refers to the core, so it ends here, before any part of that. The
  // first round may start what had only been posted.
  for (int round = 0; round < 2; ++round) {
    impl_->core.io.restart();
    impl_->core.io.poll();
    impl_->cut_off_all("the router is shutting down");
    impl_->core.io.poll();
  }
}

}  // namespace skiff::route
