#include "serve/http_connection.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>

#include "base/log.h"

namespace skiff {
namespace {

using ErrorCode = boost::system::error_code;

constexpr size_t kReadSize = 16u << 10;
// Pipelined bytes that may wait for the reply before them.
constexpr size_t kMaxAhead = 64u << 10;
// After an early refusal the client may still be sending; closing at once would reset the
// connection and lose the answer, so this much is read and dropped first.
constexpr size_t kMaxDiscard = 64u << 20;
constexpr double kLingerSeconds = 3;

// What the handler holds; the last one to go answers if nobody did.
class ReplyHandle : public HttpReply {
 public:
  explicit ReplyHandle(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~ReplyHandle() override { exchange_->abandon(); }
  void send(HttpResponse response) override { exchange_->send(std::move(response)); }
  void begin_stream(HttpResponse head) override { exchange_->begin_stream(std::move(head)); }
  bool write(std::string part) override { return exchange_->write(std::move(part)); }
  void end_stream() override { exchange_->end_stream(); }
  void on_close(std::function<void()> closed) override { exchange_->on_close(std::move(closed)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

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

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket,
                               std::string client)
    : core_(std::move(core)),
      stream_(std::move(socket), core_->tls_now().get()),
      client_(std::move(client)),
      deadline_(stream_.executor()),
      write_deadline_(stream_.executor()),
      fresh_(kReadSize),
      record_{.method = "-", .target = "-", .request_id = "-", .client = client_},
      head_began_(Clock::now()) {}

HttpConnection::~HttpConnection() {
  core_->body_bytes -= counted_;
  std::lock_guard lock(core_->mutex);
  core_->connections.erase(this);
}

void HttpConnection::start() {
  net::dispatch(executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    self->stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
    if (self->stream_.secure())
      self->handshake();
    else
      self->next_request();
  });
}

// A handshake costs more than an excuse is worth.
void HttpConnection::refuse(int status, const std::string& why) {
  net::dispatch(executor(), [self = shared_from_this(), status, why] {
    if (self->stream_.secure()) return self->shut();
    self->fail(status, why);
  });
}

void HttpConnection::close() {
  net::post(executor(), [self = shared_from_this()] { self->shut(); });
}

void HttpConnection::handshake() {
  state_ = State::kHandshake;
  arm(core_->config.header_seconds);
  stream_.handshake([self = shared_from_this()](ErrorCode error) {
    if (self->state_ == State::kClosed) return;
    if (error) return self->shut();
    self->next_request();
  });
}

// Bytes that came early are looked at before the socket is.
void HttpConnection::next_request() {
  core_->body_bytes -= std::exchange(counted_, 0);
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
  stream_.read_some(
      net::buffer(fresh_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->on_read(error, bytes); });
}

// The client's end of file while a reply is under way means that nobody waits for it any more.
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

// True unless the head was refused; the state tells whether it is complete.
bool HttpConnection::take_head() {
  if (!head_->look(view(in_))) {
    name_request();
    fail(head_->refusal().status, head_->refusal().why);
    return false;
  }
  if (head_->size() == 0) return true;
  in_.consume(head_->size());
  if (name_request()) return judge_head();
  fail(400, "the path of the request is not valid");
  return false;
}

// What is known of the head; enough for the record even if it is refused.
bool HttpConnection::name_request() {
  request_ = std::move(head_->request());
  const std::string& target = head_->target();
  if (target.empty()) return false;
  request_.request_id = sane_request_id(request_.header("x-request-id"));
  record_.method = request_.method;
  record_.target = target.substr(0, target.find('?'));
  record_.request_id = request_.request_id;
  return split_target(target, &request_);
}

bool HttpConnection::judge_head() {
  state_ = State::kBody;
  body_began_ = Clock::now();
  if (auto refused = refuse_fields(request_, head_->minor())) {
    fail(refused->status, refused->why);
    return false;
  }
  body_.emplace(request_, core_->config.max_body);
  if (body_->done()) return true;
  if (body_->refusal().status == 0 && core_->hooks.early)
    if (auto refused = core_->hooks.early(request_)) {
      fail(std::move(*refused));
      return false;
    }
  arm(body_allowance());
  if (body_->refusal().status == 0 && !request_.header("expect").empty()) say_continue();
  return true;
}

void HttpConnection::say_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  writing_ = true;
  stream_.write(net::buffer(kContinue.data(), kContinue.size()),
                [self = shared_from_this()](ErrorCode error, size_t) {
                  self->writing_ = false;
                  if (error) return self->shut();
                  self->flush();
                });
}

// True once the body is complete; otherwise it was refused, or more has been asked for.
bool HttpConnection::take_body() {
  in_.consume(body_->take(view(in_)));
  if (body_->refusal().status != 0)
    fail(body_->refusal().status, body_->refusal().why);
  else if (!count_body())
    fail(503, "too many request bodies at a time");
  else if (body_->done())
    return true;
  else
    read();
  return false;
}

bool HttpConnection::count_body() {
  const auto size = static_cast<int64_t>(body_->body().size());
  const int64_t now = core_->body_bytes += size - counted_;
  counted_ = size;
  return now <= HttpCore::kMaxBodies;
}

void HttpConnection::dispatch() {
  deadline_.cancel();
  ++armed_;
  request_.body = std::move(body_->body());
  state_ = State::kBusy;
  self_ = shared_from_this();
  ++core_->open_requests;
  exchange_ = std::make_shared<HttpExchange>(
      core_, weak_from_this(), request_.method == "HEAD", head_->minor() == 1,
      keeps_alive(request_, head_->minor()), request_.request_id, extra_headers());
  const bool at_once = core_->hooks.at_once && core_->hooks.at_once(request_);
  auto answer = [core = core_, exchange = exchange_, request = std::move(request_)]() mutable {
    auto reply = std::make_shared<ReplyHandle>(std::move(exchange));
    try {
      core->hooks.handler(std::move(request), reply);
    } catch (const std::exception& e) {
      spdlog::error("a request handler threw: {}", escaped(e.what()));
      reply->send(core->hooks.failure(500, "internal error"));
    }
  };
  if (at_once)
    answer();
  else
    net::post(core_->workers, std::move(answer));
  if (in_.size() < kMaxAhead) read();
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
  write_deadline_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->shut();
  });
  stream_.write(net::buffer(out_),
                [self = shared_from_this()](ErrorCode error, size_t) { self->on_written(error); });
}

void HttpConnection::on_written(ErrorCode error) {
  writing_ = false;
  write_deadline_.cancel();
  if (error || state_ == State::kClosed) return shut();
  if (complete_) return reply_done();
  flush();
}

void HttpConnection::reply_done() {
  record(/*complete=*/true);
  const bool keep = exchange_->keep_alive();
  exchange_->close(/*complete=*/true);
  exchange_.reset();
  const auto self = std::exchange(self_, nullptr);
  if (state_ == State::kBusy) --core_->open_requests;
  if (!keep) return linger();
  next_request();
}

void HttpConnection::record(bool complete) {
  if (!core_->hooks.record) return;
  record_.status = exchange_->status();
  record_.seconds = seconds_since(head_began_);
  record_.complete = complete;
  core_->hooks.record(record_);
}

void HttpConnection::fail(int status, const std::string& why) {
  fail(core_->hooks.failure(status, why));
}

// An answer to a request that no handler sees; the connection does not survive it.
void HttpConnection::fail(HttpResponse response) {
  if (exchange_ || state_ == State::kClosed) return;
  state_ = State::kLinger;
  deadline_.cancel();
  ++armed_;
  if (request_.request_id.empty()) {
    request_.request_id = sane_request_id("");
    record_.request_id = request_.request_id;
  }
  exchange_ = std::make_shared<HttpExchange>(core_, weak_from_this(), request_.method == "HEAD",
                                             /*chunked=*/false, /*keep_alive=*/false,
                                             request_.request_id, extra_headers());
  exchange_->send(std::move(response));
}

// The peer may still be sending; its bytes are dropped until it has read the answer.
void HttpConnection::linger() {
  state_ = State::kLinger;
  arm(kLingerSeconds);
  in_.consume(in_.size());
  stream_.finish([self = shared_from_this()](ErrorCode) {
    if (self->state_ == State::kClosed) return;
    self->stream_.end();
    self->discard();
  });
}

void HttpConnection::discard() {
  if (reading_ || state_ == State::kClosed) return;
  if (discarded_ > kMaxDiscard) return shut();
  reading_ = true;
  stream_.read_wire(
      net::buffer(fresh_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->on_read(error, bytes); });
}

void HttpConnection::shut() {
  if (state_ == State::kClosed) return;
  const bool busy = state_ == State::kBusy;
  const auto self = std::exchange(self_, nullptr);
  state_ = State::kClosed;
  stream_.close();
  deadline_.cancel();
  write_deadline_.cancel();
  if (busy) --core_->open_requests;
  if (exchange_) record(/*complete=*/false);
  if (auto exchange = std::exchange(exchange_, nullptr)) exchange->close(/*complete=*/false);
}

void HttpConnection::arm(double seconds) {
  deadline_.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  deadline_.async_wait([self = shared_from_this(), armed = ++armed_](ErrorCode error) {
    if (!error && armed == self->armed_) self->on_deadline();
  });
}

double HttpConnection::seconds_since(Clock::time_point begin) const {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// When a body that stopped here would be too slow; what is not there yet is given time by what is.
double HttpConnection::body_allowance() const {
  const HttpConfig& config = core_->config;
  const double earned =
      config.body_grace + static_cast<double>(body_->wire()) / std::max(config.body_rate, 1e-3);
  return std::min(config.body_seconds, earned) - seconds_since(body_began_);
}

void HttpConnection::on_deadline() {
  if (state_ == State::kBody && body_allowance() > 0) return arm(body_allowance());
  if (state_ == State::kHeader || state_ == State::kBody)
    return fail(408, "the request did not arrive in time");
  if (state_ == State::kIdle) return linger();
  shut();
}

}  // namespace skiff
