#include "serve/http/connection.h"

#include <boost/asio/dispatch.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <tuple>

#include "base/log.h"
#include "base/seconds.h"
#include "serve/http/handler_call.h"

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

}  // namespace

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
  } catch (...) {  // NOLINT(bugprone-empty-catch): logging may need memory, too
  }
  try {
    shut();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first statements of shut() do not throw
  }
}

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket, Origin origin,
                               ConnectionKind kind)
    : core_(std::move(core)),
      stream_(std::move(socket), core_->tls_now().get()),
      origin_(std::move(origin)),
      kind_(kind),
      deadline_(stream_.executor()),
      fresh_(kReadSize),
      reader_(core_->config, core_->body_bytes),
      record_{.method = "-", .target = "-", .request_id = "-", .client = origin_.client},
      head_began_(Clock::now()) {}

HttpConnection::~HttpConnection() {
  set_open(false);
  core_->connections.remove(this);
}

void HttpConnection::start() {
  net::dispatch(executor(), guarded([this] {
                  ErrorCode ignored;
                  std::ignore = stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
                  if (stream_.secure())
                    handshake();
                  else
                    next_request();
                }));
}

void HttpConnection::close() {
  core_->post(executor(), guarded([this] { shut(); }));
}

void HttpConnection::wake() {
  core_->post(executor(), guarded([this] { flush(); }));
}

void HttpConnection::refuse_upload() {
  core_->post(executor(), guarded([this] {
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
  reader_.begin();
  record_ = {.method = "-", .target = "-", .request_id = "-", .client = origin_.client};
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
  // Who has the end of a reply may leave before the write that brought it is known to be done.
  left_ = static_cast<bool>(error);
  if (left_ && exchange_ && complete_ && writing_) return;
  if (left_) return shut();
  reader_.append(net::buffer(fresh_.data(), bytes));
  if (state_ == State::kBusy) {
    if (reader_.ahead() < kMaxAhead) read();
    return;
  }
  feed();
}

void HttpConnection::feed() {
  if (state_ == State::kIdle && reader_.ahead() > 0) {
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
  const auto took = reader_.take_head();
  if (took == RequestReader::Took::kMore) return true;
  const bool named = name_request();
  if (took == RequestReader::Took::kRefused) {
    fail(reader_.refusal());
    return false;
  }
  if (!core_->connections.set_busy(this)) {
    shut();
    return false;
  }
  if (!named)
    fail(400, "the path of the request is not valid");
  else if (kind_ == ConnectionKind::kProbe && lane_of(*core_, reader_.request()) != HttpLane::kIo)
    fail(503, "every connection that the server may have is in use; try again later");
  else
    return judge_head();
  return false;
}

// Completes what is known of the head, for the log even if the head is refused. False if the target
// is not valid.
bool HttpConnection::name_request() {
  HttpRequest& request = reader_.request();
  const std::string& target = reader_.target();
  if (target.empty()) return false;
  request.request_id = sane_request_id(request.header("x-request-id"));
  request.client = origin_.client;
  request.door = origin_.door;
  record_.method = request.method;
  record_.target = target.substr(0, target.find('?'));
  record_.request_id = request.request_id;
  record_.serial = request.serial = ++core_->requests;
  return split_target(target, &request);
}

bool HttpConnection::judge_head() {
  state_ = State::kBody;
  switch (reader_.begin_body()) {
    case RequestReader::Took::kRefused:
      fail(reader_.refusal());
      return false;
    case RequestReader::Took::kAll:
      return true;
    case RequestReader::Took::kMore:
      break;
  }
  set_open(true);
  if (core_->draining) {  // begin_drain() may have run before this head arrived
    fail(503, "the server is shutting down");
    return false;
  }
  if (core_->hooks.early)
    if (auto refused = core_->hooks.early(reader_.request())) {
      fail(std::move(*refused));
      return false;
    }
  arm(reader_.body_allowance());
  if (reader_.awaits_continue()) say_continue();
  return true;
}

void HttpConnection::say_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  writing_ = true;
  progress_ = Clock::now();
  stream_.write(net::buffer(kContinue.data(), kContinue.size()),
                guarded([this](ErrorCode error, size_t) {
                  writing_ = false;
                  if (error) return shut();
                  flush();
                }));
}

// True once the body is complete; otherwise it was refused, or another read is under way.
bool HttpConnection::take_body() {
  const auto took = reader_.take_body();
  if (took == RequestReader::Took::kRefused) fail(reader_.refusal());
  if (took == RequestReader::Took::kMore) read();
  return took == RequestReader::Took::kAll;
}

void HttpConnection::dispatch() {
  reader_.finish();
  HttpRequest& request = reader_.request();
  state_ = State::kBusy;
  self_ = shared_from_this();
  set_open(true);
  arm(kCheckSeconds);
  exchange_ = std::make_shared<HttpExchange>(
      core_, weak_from_this(),
      ReplyFraming{
          .head = request.method == "HEAD",
          .chunked = reader_.minor() == 1,
          .keep_alive = kind_ == ConnectionKind::kOrdinary && keeps_alive(request, reader_.minor()),
          .request_id = request.request_id,
          .extra = headers_of(core_->hooks, request)});
  auto refused = core_->hooks.refuse ? core_->hooks.refuse(request) : std::nullopt;
  const HttpLane lane = lane_of(*core_, request);
  exchange_->park(std::move(request));
  if (refused) {
    exchange_->unpark();
    exchange_->send(std::move(*refused));
  } else {
    call_handler(core_, exchange_, lane);
  }
  if (reader_.ahead() < kMaxAhead) read();
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
  progress_ = Clock::now();
  stream_.write(net::buffer(out_), guarded([this](ErrorCode error, size_t) { on_written(error); }),
                [this] { progress_ = Clock::now(); });
}

void HttpConnection::on_written(ErrorCode error) {
  writing_ = false;
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
  // The connection is idle before its request ceases to be open, so that whoever sees no open
  // request sees idle connections.
  core_->connections.set_idle(this);
  if (state_ == State::kBusy) set_open(false);
  // The end of the stream is reported once: another read would wait for what cannot come.
  if (left_) return shut();
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

void HttpConnection::fail(const HttpRefusal& refusal) { fail(refusal.status, refusal.why); }

void HttpConnection::fail(int status, const std::string& why) {
  fail(core_->hooks.failure(status, why));
}

// Answers a request that never reaches a handler, then closes the connection.
void HttpConnection::fail(HttpResponse response) {
  if (exchange_ || state_ == State::kClosed) return;
  state_ = State::kLinger;
  core_->connections.set_idle(this);
  reader_.drop_body();
  arm(kCheckSeconds);
  HttpRequest& request = reader_.request();
  if (request.request_id.empty()) {
    request.request_id = sane_request_id("");
    record_.request_id = request.request_id;
  }
  exchange_ =
      std::make_shared<HttpExchange>(core_, weak_from_this(),
                                     ReplyFraming{.head = request.method == "HEAD",
                                                  .request_id = request.request_id,
                                                  .extra = headers_of(core_->hooks, request)});
  exchange_->send(std::move(response));
}

// Ends the sending side and drops what the peer still sends, so that it can read the answer.
void HttpConnection::linger() {
  state_ = State::kLinger;
  core_->connections.set_idle(this);
  arm(kLingerSeconds);
  reader_.drop_ahead();
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
  if (exchange) record(*exchange, /*complete=*/false);
}

void HttpConnection::arm(double seconds) {
  deadline_.set(seconds, guarded([this] { on_deadline(); }));
}

// Closes a connection whose client left or takes nothing, or whose reply cannot be completed. The
// read under way would notice who leaves, but there is none while kMaxAhead bytes are pipelined.
void HttpConnection::check_reply() {
  const bool left = state_ == State::kBusy && stream_.peer_left();
  const bool stuck = writing_ && seconds_since(progress_) > core_->config.write_seconds;
  if (left || stuck || exchange_->given_up()) return shut();
  arm(kCheckSeconds);
}

void HttpConnection::on_deadline() {
  if (exchange_) return check_reply();
  if (state_ == State::kBody && reader_.body_allowance() > 0) return arm(reader_.body_allowance());
  if (state_ == State::kHeader || state_ == State::kBody)
    return fail(408, "the request did not arrive in time");
  if (state_ == State::kIdle) return linger();
  shut();
}

}  // namespace skiff::http
