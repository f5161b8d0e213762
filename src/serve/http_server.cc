#include "serve/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <thread>

#include "base/load_error.h"
#include "base/log.h"
#include "serve/http_connection.h"
#include "serve/http_tls.h"

namespace skiff {
namespace {

using ErrorCode = boost::system::error_code;

net::ip::tcp::endpoint resolve(net::io_context& io, const HttpConfig& config) {
  ErrorCode error;
  net::ip::tcp::resolver resolver(io);
  std::string host = config.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const auto found =
      resolver.resolve(host, std::to_string(config.port), net::ip::tcp::resolver::passive, error);
  if (error || found.empty())
    fail_load("--host {}: {}; use an address of this machine, or 0.0.0.0 for all of them",
              config.host, error.message());
  return found.begin()->endpoint();
}

std::string address(const net::ip::tcp::endpoint& peer) {
  const std::string host = peer.address().to_string();
  return peer.address().is_v6() ? fmt::format("[{}]:{}", host, peer.port())
                                : fmt::format("{}:{}", host, peer.port());
}

}  // namespace

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

struct HttpServer::Impl {
  Impl(HttpConfig config, HttpHooks hooks)
      : core(std::make_shared<HttpCore>(std::move(config), std::move(hooks))),
        acceptor(net::make_strand(core->io)),
        retry(acceptor.get_executor()) {}

  void listen();
  void accept();
  void admit(net::ip::tcp::socket socket);
  void stop_accepting();

  std::shared_ptr<HttpCore> core;
  net::ip::tcp::acceptor acceptor;
  net::steady_timer retry;
  uint16_t port = 0;
  std::vector<std::thread> threads;
  bool stopped = false;
};

void HttpServer::Impl::listen() {
  const HttpConfig& config = core->config;
  const auto endpoint = resolve(core->io, config);
  ErrorCode error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(net::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
  if (error)
    fail_load("cannot listen on {} port {}: {}; choose another with --port", config.host,
              config.port, error.message());
  port = acceptor.local_endpoint().port();
}

void HttpServer::Impl::accept() {
  acceptor.async_accept(net::any_io_executor(core->io.get_executor()),
                        [this](ErrorCode error, net::ip::tcp::socket socket) {
                          if (!acceptor.is_open()) return;
                          if (!error) {
                            admit(std::move(socket));
                            return accept();
                          }
                          // Out of file descriptors, most likely: existing connections must end
                          // first.
                          spdlog::warn("cannot accept a connection: {}", error.message());
                          retry.expires_after(std::chrono::milliseconds(100));
                          retry.async_wait([this](ErrorCode cancelled) {
                            if (!cancelled) accept();
                          });
                        });
}

void HttpServer::Impl::admit(net::ip::tcp::socket socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  const auto native = socket.release(error);
  if (error) return;
  StreamSocket stream(net::make_strand(net::any_io_executor(core->io.get_executor())),
                      peer.protocol(), native);
  // Beyond the limit some are told so before they go; beyond twice the limit there is no time.
  const auto limit = static_cast<size_t>(core->config.max_connections);
  {
    std::lock_guard lock(core->mutex);
    if (core->connections.size() >= 2 * limit) return;
  }
  auto connection = std::make_shared<HttpConnection>(core, std::move(stream), address(peer));
  bool room;
  {
    std::lock_guard lock(core->mutex);
    room = core->connections.size() < limit;
    core->connections.emplace(connection.get(), connection);
  }
  if (room)
    connection->start();
  else
    connection->refuse(503, "too many connections");
}

HttpServer::HttpServer(HttpConfig config, HttpHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(hooks))) {
  if (const Status tls = reload_tls(); !tls) throw LoadError(tls.error().what);
  impl_->listen();
}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return impl_->port; }

// The accept under way, then the connections, keep the threads in run(); see stop().
void HttpServer::start() {
  impl_->accept();
  for (int i = 0; i < impl_->core->config.io_threads; ++i)
    impl_->threads.emplace_back([core = impl_->core] { core->io.run(); });
}

void HttpServer::begin_drain() { impl_->core->draining = true; }

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

void HttpServer::Impl::stop_accepting() {
  core->draining = true;
  net::post(acceptor.get_executor(), [this] {
    ErrorCode ignored;
    acceptor.close(ignored);
    retry.cancel();
  });
}

int HttpServer::open_requests() const { return impl_->core->open_requests; }

int HttpServer::connections() const {
  std::lock_guard lock(impl_->core->mutex);
  return static_cast<int>(impl_->core->connections.size());
}

void HttpServer::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->stop_accepting();
  std::vector<std::shared_ptr<HttpConnection>> open;
  {
    std::lock_guard lock(impl_->core->mutex);
    for (auto& [key, weak] : impl_->core->connections)
      if (auto connection = weak.lock()) open.push_back(std::move(connection));
  }
  for (auto& connection : open) connection->close();
  open.clear();
  impl_->core->workers.join();
  if (impl_->threads.empty()) impl_->core->io.run();
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace skiff
