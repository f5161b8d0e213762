#include "serve/http/server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include <chrono>
#include <thread>
#include <tuple>

#include "base/load_error.h"
#include "base/log.h"
#include "serve/http/connection.h"
#include "serve/http/tls.h"

namespace skiff::http {
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

constexpr std::chrono::milliseconds kAcceptPause{100};

// Logs one kind of warning at most every 10 seconds. Thread-safe.
class RateLimitedWarning {
 public:
  void log(const std::string& what) {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) {
      ++suppressed_;
      return;
    }
    next_ = now + kEvery;
    if (const int suppressed = std::exchange(suppressed_, 0))
      spdlog::warn("{} (and {} more times since the last such line)", what, suppressed);
    else
      spdlog::warn("{}", what);
  }

 private:
  static constexpr std::chrono::seconds kEvery{10};
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_{};  // guarded by mutex_
  int suppressed_ = 0;                            // guarded by mutex_
};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpConfig config, HttpHooks hooks)
      : core(std::make_shared<HttpCore>(std::move(config), std::move(hooks))),
        acceptor(net::make_strand(core->io)),
        retry(acceptor.get_executor()) {}

  void listen();
  void run();
  void accept();
  void accepted(ErrorCode error, net::ip::tcp::socket socket);
  void pause(const ErrorCode& error);
  void admit(net::ip::tcp::socket socket);
  void stop_accepting();

  std::shared_ptr<HttpCore> core;
  net::ip::tcp::acceptor acceptor;
  net::steady_timer retry;
  std::atomic<bool> accepting{false};  // an accept, or the pause before one, is under way
  RateLimitedWarning warning;
  uint16_t port = 0;
  std::vector<std::thread> threads;
  bool stopped = false;
};

void HttpServer::Impl::listen() {
  const HttpConfig& config = core->config;
  const auto endpoint = resolve(core->io, config);
  try {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(net::socket_base::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(net::socket_base::max_listen_connections);
  } catch (const boost::system::system_error& e) {
    fail_load("cannot listen on {} port {}: {}; choose another with --port", config.host,
              config.port, e.code().message());
  }
  port = acceptor.local_endpoint().port();
}

// Runs on the acceptor's strand, as all functions up to stop_accepting() do. `accepting` is set
// after the call, so that it stays false if the call throws; the completion handler, on the same
// strand, cannot run before that.
void HttpServer::Impl::accept() {
  acceptor.async_accept(net::any_io_executor(core->io.get_executor()),
                        [this](ErrorCode error, net::ip::tcp::socket socket) {
                          accepting = false;
                          if (acceptor.is_open()) accepted(error, std::move(socket));
                        });
  accepting = true;
}

void HttpServer::Impl::accepted(ErrorCode error, net::ip::tcp::socket socket) {
  if (error) return pause(error);
  try {
    admit(std::move(socket));
  } catch (const std::exception& e) {
    warning.log(fmt::format("cannot take a connection: {}", e.what()));
  }
  accept();
}

// Most likely the process is out of file descriptors: a connection must end before another begins.
void HttpServer::Impl::pause(const ErrorCode& error) {
  warning.log(
      fmt::format("cannot accept a connection: {}; raise the open-file limit "
                  "(ulimit -n) or lower --max-connections",
                  error.message()));
  core->connections.evict_one();
  retry.expires_after(kAcceptPause);
  retry.async_wait([this](ErrorCode cancelled) {
    accepting = false;
    if (!cancelled) accept();
  });
  accepting = true;
}

void HttpServer::Impl::admit(net::ip::tcp::socket socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  const auto kind = core->connections.make_room();
  if (!kind) return;
  const auto native = socket.release(error);
  if (error) return;
  StreamSocket stream(net::make_strand(net::any_io_executor(core->io.get_executor())),
                      peer.protocol(), native);
  auto connection = std::make_shared<HttpConnection>(core, std::move(stream), address(peer), *kind);
  core->connections.add(connection, *kind);
  connection->start();
  // stop() may have closed all connections just before this one was added.
  if (core->closing) connection->close();
}

// The loop of one I/O thread. A connection that runs out of memory ends by itself (see
// HttpConnection::guarded); an exception of Asio's own arrives here, and the accept under way may
// be lost with it, so it is started again.
void HttpServer::Impl::run() {
  for (;;) try {
      if (!accepting)
        net::post(acceptor.get_executor(), [this] {
          if (!accepting && acceptor.is_open()) accept();
        });
      core->io.run();
      return;
    } catch (const std::exception& e) {
      warning.log(fmt::format("an I/O thread goes on after: {}", e.what()));
      std::this_thread::sleep_for(kAcceptPause);
    }
}

HttpServer::HttpServer(HttpConfig config, HttpHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(hooks))) {
  if (const Status tls = reload_tls(); !tls) throw LoadError(tls.error().what);
  impl_->listen();
}

// Where a thread cannot be joined, the exception ends the process.
HttpServer::~HttpServer() { stop(); }  // NOLINT(bugprone-exception-escape)

uint16_t HttpServer::port() const { return impl_->port; }

// First the accept under way, then the connections keep the threads in run(); see stop().
void HttpServer::start() {
  impl_->accept();
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

void HttpServer::Impl::stop_accepting() {
  core->draining = true;
  net::post(acceptor.get_executor(), [this] {
    ErrorCode ignored;
    std::ignore = acceptor.close(ignored);
    retry.cancel();
  });
}

int HttpServer::open_requests() const { return impl_->core->open_requests; }

int HttpServer::connections() const { return static_cast<int>(impl_->core->connections.size()); }

void HttpServer::aside(std::function<void()> job) {
  impl_->core->work(std::move(job), HttpLane::kAside);
}

void HttpServer::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->stop_accepting();
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
