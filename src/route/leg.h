// route/leg.h -- one request to one backend and its answer, over a connection that is kept for the
// next request. On the router's thread, where it also calls its events.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fetch/name_searches.h"
#include "route/backend.h"
#include "route/response_reader.h"

namespace skiff::route {

struct LegSettings {
  double connect_seconds = 2;  // longest time to find the address, to connect, for TLS's greeting
  size_t max_idle = 256;       // connections to one backend that wait for a request
  double idle_seconds = 60;    // longest time that they wait; servers keep theirs longer
  std::shared_ptr<net::ssl::context> tls =
      nullptr;  // for backends that speak TLS; see client_tls()
};

class Leg : public std::enable_shared_from_this<Leg> {
 public:
  enum class Failure {
    kConnect,  // no connection: the backend has seen nothing of the request
    kStale,    // a connection that had waited was closed before a byte of the answer arrived; only
               // what changes nothing may be sent again, and the leg be started afresh for it
    kBroken,   // the backend may have begun with the request
  };
  // None is called after `done`, `failed` or cancel().
  struct Events {
    std::function<void()> connected;
    std::function<void(const ResponseHead&)> head;
    std::function<void(std::string)> body;
    std::function<void()> done;
    std::function<void(Failure, const std::string& why)> failed;
  };
  // `head` ends with an empty line. `body` may be null.
  Leg(net::io_context& io, fetch::NameSearches& names, std::shared_ptr<Backend> backend,
      const LegSettings& settings, std::string head, std::shared_ptr<const std::string> body,
      Events events);

  // Sends the request, over a connection that waits if there is one and `fresh` is false.
  void start(bool fresh = false);
  // Nothing is read from the backend from pause() to resume(), so that a slow client slows it down.
  void pause() { paused_ = true; }
  void resume();
  // Closes the connection, so that the backend gives the request up.
  void cancel();
  const Backend& backend() const { return *backend_; }
  // Returns the bytes of the body that are still to come, -1 if the backend has not told.
  int64_t left() const { return reader_.left(); }

 private:
  using ErrorCode = boost::system::error_code;
  bool reuse();
  void connect();
  void look_up();
  void resolved(const Result<fetch::Addresses>& found);
  void connected(const ErrorCode& error);
  void secured(const ErrorCode& error);
  void send();
  void read();
  void ended(bool well);
  void take(size_t bytes);
  void arm();
  void finish(bool reusable);
  void fail(Failure failure, const std::string& why);

  net::io_context& io_;
  fetch::NameSearches& names_;
  const std::shared_ptr<Backend> backend_;
  const LegSettings settings_;
  const std::string head_;
  std::shared_ptr<const std::string> body_;
  std::shared_ptr<const Events> events_;  // held by whoever calls one: it may cancel the leg
  Wire wire_;
  fetch::NameSearches::Waiting lookup_;  // while the backend's name is searched for
  net::steady_timer deadline_;
  ResponseReader reader_;
  std::vector<char> in_;
  bool reused_ = false, written_ = false, told_ = false;
  bool paused_ = false, reading_ = false, over_ = false;
};

// Closes connections that wait too long, or that the backend has closed, those to the port of its
// metrics included.
void drop_stale(Backend& backend, const LegSettings& settings, Clock::time_point now);

}  // namespace skiff::route
