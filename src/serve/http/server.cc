#include "serve/http/server.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/load_error.h"
#include "serve/http/connection.h"
#include "serve/http/door.h"
#include "serve/http/rate_limited_warning.h"
#include "serve/http/tls.h"

namespace skiff::http {
namespace {

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpConfig config, HttpHooks hooks)
      : core(std::make_shared<HttpCore>(std::move(config), std::move(hooks))) {}

  void listen();
  void run();

  std::shared_ptr<HttpCore> core;
  std::vector<std::unique_ptr<Door>> doors;
  RateLimitedWarning warning;
  std::vector<std::thread> threads;
  bool stopped = false;
};

void HttpServer::Impl::listen() {
  doors.push_back(std::make_unique<Door>(core, doors.size(), core->config.port));
  for (const uint16_t port : core->config.more_ports)
    doors.push_back(std::make_unique<Door>(core, doors.size(), port));
}

// The loop of one I/O thread. A connection that runs out of memory ends by itself (see
// HttpConnection::guarded); an exception of Asio's own arrives here, and the accept under way may
// be lost with it, so it is started again.
void HttpServer::Impl::run() {
  for (;;) try {
      for (const auto& door : doors) door->revive();
      core->io.run();
      return;
    } catch (const std::exception& e) {
      warning.log(fmt::format("an I/O thread goes on after: {}", e.what()));
      std::this_thread::sleep_for(kPause);
    }
}

HttpServer::HttpServer(HttpConfig config, HttpHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(hooks))) {
  if (const Status tls = reload_tls(); !tls) throw LoadError(tls.error().what);
  impl_->listen();
}

// Where a thread cannot be joined, the exception ends the process.
HttpServer::~HttpServer() { stop(); }  // NOLINT(bugprone-exception-escape)

uint16_t HttpServer::port() const { return impl_->doors.front()->port(); }

std::vector<uint16_t> HttpServer::ports() const {
  std::vector<uint16_t> ports;
  ports.reserve(impl_->doors.size());
  for (const auto& door : impl_->doors) ports.push_back(door->port());
  return ports;
}

// First the accepts under way, then the connections keep the threads in run(); see stop().
void HttpServer::start() {
  for (const auto& door : impl_->doors) door->accept();
  for (int i = 0; i < impl_->core->config.io_threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
}

void HttpServer::begin_drain() {
  if (impl_->core->draining.exchange(true)) return;
  for (const auto& connection : impl_->core->connections.all()) connection->refuse_upload();
}

Status HttpServer::reload_tls() {
  const HttpConfig& config = impl_->core->config;
  if (config.tls_certificate.empty() && config.tls_key.empty()) return ok();
  if (config.tls_certificate.empty() || config.tls_key.empty())
    return Error{Code::kInvalid, "TLS needs both --ssl-certfile and --ssl-keyfile"};
  auto loaded = load_tls(config.tls_certificate, config.tls_key);
  if (!loaded) return loaded.error();
  std::lock_guard lock(impl_->core->mutex);
  impl_->core->tls = std::move(*loaded);
  return ok();
}

int HttpServer::open_requests() const { return impl_->core->open_requests; }

int HttpServer::connections() const { return static_cast<int>(impl_->core->connections.size()); }

void HttpServer::aside(std::function<void()> job) {
  impl_->core->work(std::move(job), HttpLane::kAside);
}

void HttpServer::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->core->draining = true;
  for (const auto& door : impl_->doors) door->close();
  impl_->core->closing = true;
  for (const auto& connection : impl_->core->connections.all()) connection->close();
  {
    std::lock_guard lock(impl_->core->mutex);
    impl_->core->stopped = true;
  }
  impl_->core->workers.join();
  impl_->core->aside.join();
  impl_->core->quick.join();
  impl_->core->large.join();
  impl_->core->end_io(impl_->threads);
}

}  // namespace skiff::http
