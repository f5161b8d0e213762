// serve/http/door.h -- one port of a server, and the connections that it takes. Private to the HTTP
// server.
#pragma once
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

#include "serve/http/core.h"
#include "serve/http/rate_limited_warning.h"

namespace skiff::http {

// Outlives the threads that run the core's `io`.
class Door {
 public:
  // Binds and listens. `number` is what HttpRequest::door will be. Throws LoadError naming the
  // port.
  Door(std::shared_ptr<HttpCore> core, size_t number, uint16_t port);

  uint16_t port() const { return port_; }
  // Begins to take connections; before the threads run, or on the door's strand.
  void accept();
  // Begins again, if an exception has ended it. Any thread.
  void revive();
  void close();  // any thread

 private:
  using ErrorCode = boost::system::error_code;
  void accepted(ErrorCode error, net::ip::tcp::socket socket);
  void pause(const ErrorCode& error);
  void admit(net::ip::tcp::socket socket);

  const std::shared_ptr<HttpCore> core_;
  const size_t number_;
  net::ip::tcp::acceptor acceptor_;
  net::steady_timer retry_;
  std::atomic<bool> accepting_{false};  // an accept, or the pause before one, is under way
  RateLimitedWarning warning_;
  uint16_t port_ = 0;
};

}  // namespace skiff::http
