#include "serve/server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "serve/front.h"
#include "serve/openai_error.h"
#include "serve/protocols.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Route> all_routes(Front& front) {
  std::vector<Route> routes;
  for (auto& protocol : {openai_routes(front), tokenize_routes(front), probe_routes(front)})
    routes.insert(routes.end(), protocol.begin(), protocol.end());
  for (Route& route : info_routes(front, routes)) routes.push_back(std::move(route));
  return routes;
}

}  // namespace

struct Server::Impl {
  Impl(ServerConfig config, Service& service)
      : front(std::make_shared<Front>(config, service, std::time(nullptr))),
        router(all_routes(*front)),
        http(
            config.http,
            [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
              router.dispatch(std::move(request), std::move(reply));
            },
            [](int status, const std::string& why) {
              return error_response(api_error(status, why));
            }) {}

  void tick_until_stopped();

  std::shared_ptr<Front> front;
  Router router;
  HttpServer http;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false, forced = false;  // guarded by mutex
  std::thread ticker;
};

void Server::Impl::tick_until_stopped() {
  const double idle = std::clamp(front->config.stream_idle_seconds / 4, 0.01, 1.0);
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, std::chrono::duration<double>(idle), [this] { return stopped; })) {
    lock.unlock();
    for (auto& running : front->gate.all()) running->tick();
    lock.lock();
  }
}

Server::Server(ServerConfig config, Service& service) {
  SKIFF_CHECK(!config.model_names.empty());
  impl_ = std::make_unique<Impl>(std::move(config), service);
}

Server::~Server() { stop(); }

uint16_t Server::port() const { return impl_->http.port(); }

void Server::start() {
  impl_->http.start();
  impl_->ticker = std::thread([impl = impl_.get()] { impl->tick_until_stopped(); });
}

bool Server::drain(double seconds) {
  impl_->front->gate.draining = true;
  impl_->http.stop_accepting();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto finished = [this] { return impl_->http.open_requests() == 0; };
  std::unique_lock lock(impl_->mutex);
  while (!finished() && !impl_->forced && Clock::now() < end)
    impl_->changed.wait_for(lock, std::chrono::milliseconds(20));
  lock.unlock();
  if (finished()) return true;
  for (auto& running : impl_->front->gate.all()) running->cut_off();
  // The last words still have to leave.
  for (int i = 0; i < 50 && !finished(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return false;
}

void Server::force() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->forced = true;
  }
  impl_->changed.notify_all();
}

void Server::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
  }
  impl_->changed.notify_all();
  impl_->front->gate.draining = true;
  for (auto& running : impl_->front->gate.all()) running->cut_off();
  impl_->http.stop();
  // A handler may have got through between the two lines above.
  for (auto& running : impl_->front->gate.all()) running->cut_off();
  if (impl_->ticker.joinable()) impl_->ticker.join();
}

}  // namespace skiff
