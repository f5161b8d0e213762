#include "serve/http/door.h"

#include <boost/system/system_error.hpp>

#include <chrono>
#include <string>
#include <tuple>
#include <utility>

#include "base/load_error.h"
#include "serve/http/connection.h"

namespace skiff::http {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

net::ip::tcp::endpoint resolve(net::io_context& io, std::string host, uint16_t port) {
  boost::system::error_code error;
  net::ip::tcp::resolver resolver(io);
  const std::string given = host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const auto found =
      resolver.resolve(host, std::to_string(port), net::ip::tcp::resolver::passive, error);
  if (error || found.empty())
    fail_load("--host {}: {}; use an address of this machine, or 0.0.0.0 for all of them", given,
              error.message());
  return found.begin()->endpoint();
}

std::string address(const net::ip::tcp::endpoint& peer) {
  const std::string host = peer.address().to_string();
  return peer.address().is_v6() ? fmt::format("[{}]:{}", host, peer.port())
                                : fmt::format("{}:{}", host, peer.port());
}

}  // namespace

Door::Door(std::shared_ptr<HttpCore> core, size_t number, uint16_t port)
    : core_(std::move(core)),
      number_(number),
      acceptor_(net::make_strand(core_->io)),
      retry_(acceptor_.get_executor()) {
  const std::string& host = core_->config.host;
  const auto endpoint = resolve(core_->io, host, port);
  try {
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(net::socket_base::reuse_address(true));
    acceptor_.bind(endpoint);
    acceptor_.listen(net::socket_base::max_listen_connections);
  } catch (const boost::system::system_error& e) {
    fail_load("cannot listen on {} port {}: {}; choose another with {}", host, port,
              e.code().message(), number_ == 0 ? "--port" : "the flag that names it");
  }
  port_ = acceptor_.local_endpoint().port();
}

// Runs on the acceptor's strand, as all functions up to revive() do. `accepting_` is set after the
// call, so that it stays false if the call throws; the completion handler, on the same strand,
// cannot run before that.
void Door::accept() {
  acceptor_.async_accept(net::any_io_executor(core_->io.get_executor()),
                         [this](ErrorCode error, net::ip::tcp::socket socket) {
                           accepting_ = false;
                           if (acceptor_.is_open()) accepted(error, std::move(socket));
                         });
  accepting_ = true;
}

void Door::accepted(ErrorCode error, net::ip::tcp::socket socket) {
  if (error) return pause(error);
  try {
    admit(std::move(socket));
  } catch (const std::exception& e) {
    warning_.log(fmt::format("cannot take a connection: {}", e.what()));
  }
  accept();
}

// Most likely the process is out of file descriptors: a connection must end before another begins.
void Door::pause(const ErrorCode& error) {
  warning_.log(
      fmt::format("cannot accept a connection: {}; raise the open-file limit "
                  "(ulimit -n) or lower --max-connections",
                  error.message()));
  core_->connections.evict_one();
  retry_.expires_after(kAcceptPause);
  retry_.async_wait([this](ErrorCode cancelled) {
    accepting_ = false;
    if (!cancelled) accept();
  });
  accepting_ = true;
}

void Door::admit(net::ip::tcp::socket socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  const auto kind = core_->connections.make_room();
  if (!kind) return;
  const auto native = socket.release(error);
  if (error) return;
  StreamSocket stream(net::make_strand(net::any_io_executor(core_->io.get_executor())),
                      peer.protocol(), native);
  auto connection = std::make_shared<HttpConnection>(
      core_, std::move(stream), HttpConnection::Origin{.client = address(peer), .door = number_},
      *kind);
  core_->connections.add(connection, *kind);
  connection->start();
  // stop() may have closed all connections just before this one was added.
  if (core_->closing) connection->close();
}

void Door::revive() {
  if (accepting_) return;
  net::post(acceptor_.get_executor(), [this] {
    if (!accepting_ && acceptor_.is_open()) accept();
  });
}

void Door::close() {
  net::post(acceptor_.get_executor(), [this] {
    ErrorCode ignored;
    std::ignore = acceptor_.close(ignored);
    retry_.cancel();
  });
}

}  // namespace skiff::http
