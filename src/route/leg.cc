#include "route/leg.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/seconds.h"

namespace skiff::route {
namespace {

constexpr size_t kReadSize = 16 << 10;
// A host that has vanished without a word is noticed after about so many milliseconds.
constexpr int kVanished = 30000;
constexpr int kKeepIdle = 15, kKeepInterval = 5, kKeepCount = 3;  // seconds, seconds, probes

void tune(Socket& socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepInterval);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kVanished);
}

}  // namespace

Leg::Leg(net::io_context& io, fetch::NameSearches& names, std::shared_ptr<Backend> backend,
         const LegSettings& settings, std::string head, std::shared_ptr<const std::string> body,
         Events events)
    : io_(io),
      names_(names),
      backend_(std::move(backend)),
      settings_(settings),
      head_(std::move(head)),
      body_(std::move(body)),
      events_(std::make_shared<const Events>(std::move(events))),
      wire_(io),
      deadline_(io),
      in_(kReadSize) {}

void Leg::start(bool fresh) {
  reused_ = !fresh && reuse();
  if (reused_) return send();
  connect();
}

bool Leg::reuse() {
  while (!backend_->idle.empty()) {
    Wire wire = std::move(backend_->idle.front().wire);
    backend_->idle.pop_front();
    if (!wire.silent()) continue;
    wire_ = std::move(wire);
    return true;
  }
  return false;
}

void Leg::arm() {
  deadline_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(settings_.connect_seconds)));
  deadline_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (!error && !self->over_)
      self->fail(Failure::kConnect, self->lookup_ ? "its name was not found in time"
                                                  : "it did not take the connection in time");
  });
}

void Leg::connect() {
  wire_ = Wire(io_);
  arm();
  ErrorCode not_an_address;
  const auto address = net::ip::make_address(backend_->instance.host, not_an_address);
  if (!not_an_address) {
    const net::ip::tcp::endpoint endpoint(address, backend_->instance.port);
    wire_.socket().async_connect(
        endpoint, [self = shared_from_this()](const ErrorCode& error) { self->connected(error); });
    return;
  }
  look_up();
}

// A search may take longer than anything here lives, and ends on a thread of its own.
void Leg::look_up() {
  const auto tell = [&io = io_, weak = weak_from_this()](const Result<fetch::Addresses>& found) {
    net::post(io, [weak, found] {
      if (const auto self = weak.lock()) self->resolved(found);
    });
  };
  auto lookup = names_.begin(backend_->instance.host, tell);
  if (!lookup) return tell(lookup.error());
  lookup_ = std::move(*lookup);
}

void Leg::resolved(const Result<fetch::Addresses>& found) {
  if (over_) return;
  lookup_.reset();
  if (!found) return fail(Failure::kConnect, found.error().what);
  std::vector<net::ip::tcp::endpoint> endpoints;
  for (const std::string& address : *found)
    endpoints.emplace_back(net::ip::make_address(address), backend_->instance.port);
  arm();
  net::async_connect(
      wire_.socket(), endpoints,
      [self = shared_from_this()](const ErrorCode& failed, auto&&) { self->connected(failed); });
}

void Leg::connected(const ErrorCode& error) {
  if (over_) return;
  deadline_.cancel();
  if (error) return fail(Failure::kConnect, fmt::format("no connection: {}", error.message()));
  tune(wire_.socket());
  if (!backend_->instance.secure) return send();
  wire_.secure(*settings_.tls, backend_->instance.host);
  arm();
  wire_.handshake([self = shared_from_this()](const ErrorCode& failed) { self->secured(failed); });
}

// A server whose certificate is not good has seen nothing of the request.
void Leg::secured(const ErrorCode& error) {
  if (over_) return;
  deadline_.cancel();
  if (error) return fail(Failure::kConnect, fmt::format("no TLS: {}", error.message()));
  send();
}

// A backend may answer before it has read everything, so reading does not wait for the end of
// writing. A failed write is seen by the reader, too, which may still find an answer.
void Leg::send() {
  const auto events = events_;
  events->connected();
  if (over_) return;
  const std::array<net::const_buffer, 2> buffers{net::buffer(head_),
                                                 body_ ? net::buffer(*body_) : net::const_buffer()};
  wire_.write(buffers, [self = shared_from_this(), body = body_](const ErrorCode& error, size_t) {
    self->written_ = !error;
  });
  read();
}

void Leg::read() {
  if (reading_ || paused_ || over_) return;
  reading_ = true;
  wire_.read(net::buffer(in_), [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
    self->reading_ = false;
    if (self->over_) return;
    if (!error) return self->take(bytes);
    self->ended(self->wire_.ended_well(error));
  });
}

void Leg::ended(bool well) {
  reader_.end();
  if (well && reader_.done()) return finish(/*reusable=*/false);
  const bool stale = reused_ && !reader_.began();
  fail(stale ? Failure::kStale : Failure::kBroken,
       well ? reader_.why() : "its connection ended without TLS's farewell");
}

void Leg::take(size_t bytes) {
  const auto self = shared_from_this();  // an event may drop the last reference
  const auto events = events_;
  reading_ = true;  // an event that resumes must not read beside this
  std::string body;
  const size_t taken = reader_.take({in_.data(), bytes}, &body);
  if (reader_.has_head() && !std::exchange(told_, true)) {
    body_.reset();
    events->head(reader_.head());
    if (over_) return;
  }
  if (!body.empty()) {
    events->body(std::move(body));
    if (over_) return;
  }
  if (reader_.failed()) return fail(Failure::kBroken, reader_.why());
  if (reader_.done()) return finish(taken == bytes && written_ && reader_.keeps_alive());
  reading_ = false;
  read();
}

void Leg::resume() {
  paused_ = false;
  read();
}

void Leg::finish(bool reusable) {
  if (reusable) {
    backend_->idle.push_front({std::move(wire_), Clock::now()});
    wire_ = Wire(io_);
    if (backend_->idle.size() > settings_.max_idle) backend_->idle.pop_back();
  }
  const auto events = events_;
  cancel();
  events->done();
}

void Leg::fail(Failure failure, const std::string& why) {
  if (failure == Failure::kStale) {  // start() may follow
    wire_.close();
    reader_ = {};
    const auto events = events_;
    return events->failed(failure, why);
  }
  const auto events = events_;
  cancel();
  events->failed(failure, why);
}

void Leg::cancel() {
  over_ = true;
  wire_.close();
  lookup_.reset();
  deadline_.cancel();
  events_.reset();
  body_.reset();
}

void drop_stale(Backend& backend, const LegSettings& settings, Clock::time_point now) {
  std::erase_if(backend.idle, [&](IdleConnection& connection) {
    return seconds(now - connection.since) > settings.idle_seconds || !connection.wire.silent();
  });
  if (backend.metrics_place) drop_stale(*backend.metrics_place, settings, now);
}

}  // namespace skiff::route
