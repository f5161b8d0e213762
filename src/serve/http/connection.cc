#include "serve/http/connection.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>

#include "base/log.h"

namespace skiff::http {
namespace {

using ErrorCode = boost::system::error_code;

constexpr size_t kReadSize = 16u << 10;
// Bytes of pipelined requests that are read before the current reply is complete.
constexpr size_t kMaxAhead = 64u << 10;
// After an early refusal the client may still be sending; closing at once would reset the
// connection and lose the answer, so this much is read and dropped first.
constexpr size_t kMaxDiscard = 64u << 20;
constexpr double kLingerSeconds = 3;
// Interval of check_reply(), in seconds.
constexpr double kCheckSeconds = 1;
// Bytes of body that a request of a method without content may have.
constexpr size_t kMaxIdleBody = 4u << 10;

// The handler's handle. The end of the last one answers 500 if the handler has not answered.
class ReplyHandle : public HttpReply {
 public:
  explicit ReplyHandle(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~ReplyHandle() override { exchange_->abandon(); }
  void send(HttpResponse response) override { exchange_->send(std::move(response)); }
  void begin_stream(HttpResponse head) override { exchange_->begin_stream(std::move(head)); }
  bool write(std::string part) override { return exchange_->write(std::move(part)); }
  void end_stream() override { exchange_->end_stream(); }
  void on_close(std::function<void()> closed) override { exchange_->on_close(std::move(closed)); }
  void on_worker(std::function<void()> job) override { exchange_->on_worker(std::move(job)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

// Calls the handler, on an I/O thread or a worker; whatever it throws ends this request alone.
void answer(const HttpHooks& hooks, const std::shared_ptr<HttpExchange>& exchange) noexcept try {
  auto request = exchange->unpark();
  if (!request) return;  // the client left while the request waited for a worker
  const auto reply = std::make_shared<ReplyHandle>(exchange);
  try {
    hooks.handler(std::move(*request), reply);
  } catch (const std::exception& e) {
    spdlog::error("a request handler threw: {}", escaped(e.what()));
    reply->send(hooks.failure(500, "internal error"));
  }
} catch (...) {
  exchange->give_up();
}

std::string_view view(const boost::beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

}  // namespace

std::string sane_request_id(std::string_view given) {
  const auto sane = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':' || c == '/' || c == '=' || c == '+';
  };
  if (!given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), sane))
    return std::string(given);
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

// Wraps a handler for Asio, which calls it on the strand while it keeps this connection alive. If
// memory runs out or a hook throws, only this connection ends.
template <class Work>
auto HttpConnection::guarded(Work work) {
  return [self = shared_from_this(), work = std::move(work)](auto... arguments) mutable {
    try {
      work(arguments...);
    } catch (const std::exception& e) {
      self->broken(e.what());
    }
  };
}

void HttpConnection::broken(const char* why) noexcept {
  try {
    spdlog::error("a connection was closed: {}", escaped(why));
  } catch (...) {  // logging may need memory, too
  }
  try {
    shut();
  } catch (...) {  // the first statements of shut() do not throw
  }
}

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket,
                               std::string client, ConnectionKind kind)
    : core_(std::move(core)),
      stream_(std::move(socket), core_->tls_now().get()),
      client_(std::move(client)),
      kind_(kind),
      deadline_(stream_.executor()),
      write_deadline_(stream_.executor()),
      fresh_(kReadSize),
      record_{.method = "-", .target = "-", .request_id = "-", .client = client_},
      head_began_(Clock::now()) {}

HttpConnection::~HttpConnection() {
  set_open(false);
  core_->connections.remove(this);
}

void HttpConnection::start() {
  net::dispatch(executor(), guarded([this] {
                  ErrorCode ignored;
                  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
                  if (stream_.secure())
                    handshake();
                  else
                    next_request();
                }));
}

void HttpConnection::close() {
  net::post(executor(), guarded([this] { shut(); }));
}

void HttpConnection::wake() {
  net::post(executor(), guarded([this] { flush(); }));
}

void HttpConnection::refuse_upload() {
  net::post(executor(), guarded([this] {
              if (state_ == State::kBody) fail(503, "the server is shutting down");
            }));
}

void HttpConnection::set_open(bool open) {
  if (std::exchange(open_, open) != open) core_->open_requests += open ? 1 : -1;
}

void HttpConnection::handshake() {
  state_ = State::kHandshake;
  arm(core_->config.header_seconds);
  stream_.handshake(guarded([this](ErrorCode error) {
    if (state_ == State::kClosed) return;
    if (error) return shut();
    next_request();
  }));
}

// Bytes that were read ahead are parsed before the socket is read again.
void HttpConnection::next_request() {
  core_->connections.set_idle(this);
  head_.emplace(core_->config.max_header, core_->config.max_fields);
  request_ = {};
  record_ = {.method = "-", .target = "-", .request_id = "-", .client = client_};
  state_ = State::kIdle;
  complete_ = false;
  arm(core_->config.idle_seconds);
  feed();
}

void HttpConnection::read() {
  if (reading_ || state_ == State::kClosed) return;
  reading_ = true;
  stream_.read_some(net::buffer(fresh_),
                    guarded([this](ErrorCode error, size_t bytes) { on_read(error, bytes); }));
}

// End of file while a reply is under way means that the client has left.
void HttpConnection::on_read(ErrorCode error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (state_ == State::kLinger) {
    if (exchange_) return;  // the refusal is still being sent
    if (error && !HttpStream::only_tls(error)) return shut();
    discarded_ += bytes;
    return discard();
  }
  if (error) return shut();
  in_.commit(net::buffer_copy(in_.prepare(bytes), net::buffer(fresh_.data(), bytes)));
  if (state_ == State::kBusy) {
    if (in_.size() < kMaxAhead) read();
    return;
  }
  feed();
}

void HttpConnection::feed() {
  if (state_ == State::kIdle && in_.size() > 0) {
    state_ = State::kHeader;
    head_began_ = Clock::now();
    arm(core_->config.header_seconds);
  }
  if (state_ == State::kHeader && !take_head()) return;
  if (state_ == State::kBody && !take_body()) return;
  if (state_ == State::kBody) return dispatch();
  read();
}

// False if the head was refused. Complete heads move the state to kBody.
bool HttpConnection::take_head() {
  if (!head_->look(view(in_))) {
    name_request();
    fail(head_->refusal().status, head_->refusal().why);
    return false;
  }
  if (head_->size() == 0) return true;
  in_.consume(head_->size());
  const bool named = name_request();
  if (!core_->connections.set_busy(this)) {
    shut();
    return false;
  }
  if (!named)
    fail(400, "the path of the request is not valid");
  else if (kind_ == ConnectionKind::kProbe && lane() != HttpLane::kIo)
    fail(503, "every connection that the server may have is in use; try again later");
  else
    return judge_head();
  return false;
}

// Copies what is known of the head, for the log even if the head is refused. False if the target is
// not valid.
bool HttpConnection::name_request() {
  request_ = std::move(head_->request());
  const std::string& target = head_->target();
  if (target.empty()) return false;
  request_.request_id = sane_request_id(request_.header("x-request-id"));
  record_.method = request_.method;
  record_.target = target.substr(0, target.find('?'));
  record_.request_id = request_.request_id;
  record_.serial = request_.serial = ++core_->requests;
  return split_target(target, &request_);
}

bool HttpConnection::judge_head() {
  state_ = State::kBody;
  body_began_ = Clock::now();
  if (auto refused = refuse_fields(request_, head_->minor())) {
    fail(refused->status, refused->why);
    return false;
  }
  body_.emplace(request_, body_limit());
  if (body_->done()) return true;
  set_open(true);
  if (core_->draining) {  // begin_drain() may have run before this head arrived
    fail(503, "the server is shutting down");
    return false;
  }
  if (core_->hooks.early)
    if (auto refused = core_->hooks.early(request_)) {
      fail(std::move(*refused));
      return false;
    }
  arm(body_allowance());
  const bool asked = head_->minor() == 1 && !request_.header("expect").empty();
  if (body_->refusal().status == 0 && asked) say_continue();
  return true;
}

// GET, HEAD and the like have no content by definition; some clients send a little all the same.
size_t HttpConnection::body_limit() const {
  const bool has_content =
      request_.method == "POST" || request_.method == "PUT" || request_.method == "PATCH";
  return has_content ? core_->config.max_body : std::min(core_->config.max_body, kMaxIdleBody);
}

void HttpConnection::say_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  writing_ = true;
  stream_.write(net::buffer(kContinue.data(), kContinue.size()),
                guarded([this](ErrorCode error, size_t) {
                  writing_ = false;
                  if (error) return shut();
                  flush();
                }));
}

// True once the body is complete; otherwise it was refused, or another read is under way.
bool HttpConnection::take_body() {
  in_.consume(body_->take(view(in_)));
  if (body_->refusal().status != 0)
    fail(body_->refusal().status, body_->refusal().why);
  else if (!count_body())
    fail(503, "the server holds as many request bodies as it may; try again later");
  else if (body_->done())
    return true;
  else
    read();
  return false;
}

// Counts the memory of the body: its capacity, which exceeds its size while it grows. False if all
// bodies together exceed the limit.
bool HttpConnection::count_body() {
  if (body_->body().empty()) return true;
  if (!counted_) counted_ = std::make_shared<BodyCount>(core_->body_bytes);
  return counted_->set(body_->body().capacity()) <= core_->config.max_bodies;
}

HttpLane HttpConnection::lane() const {
  const HttpLane lane = core_->hooks.lane ? core_->hooks.lane(request_) : HttpLane::kWork;
  const bool large = request_.body.size() >= core_->config.large_body;
  return lane == HttpLane::kWork && large ? HttpLane::kLarge : lane;
}

void HttpConnection::dispatch() {
  request_.body = std::move(body_->body());
  request_.counted = std::move(counted_);
  state_ = State::kBusy;
  self_ = shared_from_this();
  set_open(true);
  arm(kCheckSeconds);
  exchange_ = std::make_shared<HttpExchange>(
      core_, weak_from_this(),
      ReplyFraming{
          .head = request_.method == "HEAD",
          .chunked = head_->minor() == 1,
          .keep_alive = kind_ == ConnectionKind::kOrdinary && keeps_alive(request_, head_->minor()),
          .request_id = request_.request_id,
          .extra = extra_headers()});
  auto refused = core_->hooks.refuse ? core_->hooks.refuse(request_) : std::nullopt;
  const HttpLane to = lane();
  exchange_->park(std::move(request_));
  if (refused) {
    exchange_->unpark();
    exchange_->send(std::move(*refused));
  } else {
    call_handler(to);
  }
  if (in_.size() < kMaxAhead) read();
}

void HttpConnection::call_handler(HttpLane lane) {
  auto work = [core = core_, exchange = exchange_] { answer(core->hooks, exchange); };
  if (lane == HttpLane::kIo)
    work();
  else
    net::post(core_->threads_of(lane), std::move(work));
}

HttpHeaders HttpConnection::extra_headers() const {
  return core_->hooks.headers ? core_->hooks.headers(request_) : HttpHeaders{};
}

void HttpConnection::flush() {
  if (writing_ || !exchange_ || state_ == State::kClosed) return;
  out_ = exchange_->take(&complete_);
  if (out_.empty()) {
    if (complete_) reply_done();
    return;
  }
  record_.sent += out_.size();
  writing_ = true;
  write_deadline_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(core_->config.write_seconds)));
  write_deadline_.async_wait(guarded([this](ErrorCode error) {
    if (!error) shut();
  }));
  stream_.write(net::buffer(out_), guarded([this](ErrorCode error, size_t) { on_written(error); }));
}

void HttpConnection::on_written(ErrorCode error) {
  writing_ = false;
  write_deadline_.cancel();
  if (error || state_ == State::kClosed) return shut();
  if (complete_) return reply_done();
  flush();
}

void HttpConnection::reply_done() {
  record(*exchange_, /*complete=*/true);
  const bool keep = exchange_->keep_alive();
  exchange_->close(/*complete=*/true);
  exchange_.reset();
  out_ = {};  // an idle connection keeps no buffer
  const auto self = std::exchange(self_, nullptr);
  if (state_ == State::kBusy) set_open(false);
  if (!keep) return linger();
  next_request();
}

void HttpConnection::record(const HttpExchange& exchange, bool complete) {
  if (!core_->hooks.record) return;
  record_.status = exchange.status();
  record_.seconds = seconds_since(head_began_);
  record_.complete = complete;
  core_->hooks.record(record_);
}

void HttpConnection::fail(int status, const std::string& why) {
  fail(core_->hooks.failure(status, why));
}

// Answers a request that never reaches a handler, then closes the connection.
void HttpConnection::fail(HttpResponse response) {
  if (exchange_ || state_ == State::kClosed) return;
  state_ = State::kLinger;
  core_->connections.set_idle(this);
  body_.reset();
  counted_.reset();
  arm(kCheckSeconds);
  if (request_.request_id.empty()) {
    request_.request_id = sane_request_id("");
    record_.request_id = request_.request_id;
  }
  exchange_ = std::make_shared<HttpExchange>(core_, weak_from_this(),
                                             ReplyFraming{.head = request_.method == "HEAD",
                                                          .request_id = request_.request_id,
                                                          .extra = extra_headers()});
  exchange_->send(std::move(response));
}

// Ends the sending side and drops what the peer still sends, so that it can read the answer.
void HttpConnection::linger() {
  state_ = State::kLinger;
  core_->connections.set_idle(this);
  arm(kLingerSeconds);
  in_.consume(in_.size());
  stream_.finish(guarded([this](ErrorCode) {
    if (state_ == State::kClosed) return;
    stream_.end();
    discard();
  }));
}

void HttpConnection::discard() {
  if (reading_ || state_ == State::kClosed) return;
  if (discarded_ > kMaxDiscard) return shut();
  reading_ = true;
  stream_.read_wire(net::buffer(fresh_),
                    guarded([this](ErrorCode error, size_t bytes) { on_read(error, bytes); }));
}

// The order matters: nothing that may throw comes before the connection leaves the table and its
// generation is cancelled.
void HttpConnection::shut() {
  if (state_ == State::kClosed) return;
  const auto self = std::exchange(self_, nullptr);
  state_ = State::kClosed;
  stream_.close();
  set_open(false);
  core_->connections.remove(this);
  const auto exchange = std::exchange(exchange_, nullptr);
  if (exchange) exchange->close(/*complete=*/false);
  deadline_.cancel();
  write_deadline_.cancel();
  if (exchange) record(*exchange, /*complete=*/false);
}

void HttpConnection::arm(double seconds) {
  deadline_.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  deadline_.async_wait(guarded([this, armed = ++armed_](ErrorCode error) {
    if (!error && armed == armed_) on_deadline();
  }));
}

double HttpConnection::seconds_since(Clock::time_point begin) const {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds until the deadline that the minimum body rate implies for the bytes received so far.
double HttpConnection::body_allowance() const {
  const HttpConfig& config = core_->config;
  const double earned =
      config.body_grace + static_cast<double>(body_->wire()) / std::max(config.body_rate, 1e-3);
  return std::min(config.body_seconds, earned) - seconds_since(body_began_);
}

// Closes the connection if its client has left or its reply cannot be completed. The read under way
// would notice a client that leaves, but there is none while kMaxAhead bytes are pipelined.
void HttpConnection::check_reply() {
  const bool left = state_ == State::kBusy && stream_.peer_left();
  if (left || exchange_->given_up()) return shut();
  arm(kCheckSeconds);
}

void HttpConnection::on_deadline() {
  if (exchange_) return check_reply();
  if (state_ == State::kBody && body_allowance() > 0) return arm(body_allowance());
  if (state_ == State::kHeader || state_ == State::kBody)
    return fail(408, "the request did not arrive in time");
  if (state_ == State::kIdle) return linger();
  shut();
}

}  // namespace skiff::http
