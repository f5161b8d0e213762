#include "serve/http_connection.h"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>

#include "base/log.h"

namespace skiff {
namespace {

namespace http = boost::beast::http;
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

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "http://host/path" (absolute form) and "/path" name the same thing.
std::string_view origin_form(std::string_view target) {
  if (target.empty() || target[0] == '/') return target;
  const size_t scheme = target.find("://");
  if (scheme == std::string_view::npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return out;
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

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    out += c;
  }
  return out;
}

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      fresh_(kReadSize) {}

HttpConnection::~HttpConnection() {
  core_->body_bytes -= counted_;
  std::lock_guard lock(core_->mutex);
  core_->connections.erase(this);
}

void HttpConnection::start() {
  net::dispatch(executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    self->socket_.set_option(net::ip::tcp::no_delay(true), ignored);
    self->next_request();
  });
}

void HttpConnection::refuse(int status, const std::string& why) {
  net::dispatch(executor(), [self = shared_from_this(), status, why] { self->fail(status, why); });
}

void HttpConnection::close() {
  net::post(executor(), [self = shared_from_this()] { self->shut(); });
}

// Bytes that came early are looked at before the socket is.
void HttpConnection::next_request() {
  core_->body_bytes -= std::exchange(counted_, 0);
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_->config.max_header));
  parser_->body_limit(core_->config.max_body);
  parser_->eager(true);
  state_ = State::kIdle;
  complete_ = false;
  arm(core_->config.idle_seconds);
  feed();
}

void HttpConnection::read() {
  if (reading_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_.async_read_some(
      net::buffer(fresh_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->on_read(error, bytes); });
}

// The client's end of file while a reply is under way means that nobody waits for it any more.
void HttpConnection::on_read(ErrorCode error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error && state_ == State::kLinger && exchange_) return;  // the refusal is still being sent
  if (error) return shut();
  if (state_ == State::kLinger) {
    discarded_ += bytes;
    if (discarded_ > kMaxDiscard) return shut();
    return read();
  }
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
    arm(core_->config.header_seconds);
  }
  while (in_.size() > 0 && !parser_->is_done()) {
    ErrorCode error;
    const size_t used = parser_->put(in_.data(), error);
    in_.consume(used);
    if (error && error != http::error::need_more) return fail(error);
    if (state_ == State::kHeader && parser_->is_header_done() && !after_header()) return;
    if (!count_body()) return fail(503, "too many request bodies at a time");
    if (error || used == 0) break;
  }
  if (state_ == State::kHeader && parser_->is_header_done() && !after_header()) return;
  if (parser_->is_header_done() && parser_->is_done()) return dispatch();
  // What the parser leaves is an unfinished header or chunk header.
  if (in_.size() > core_->config.max_header + kReadSize)
    return fail(400, "a header or chunk header is too long");
  read();
}

bool HttpConnection::after_header() {
  state_ = State::kBody;
  arm(core_->config.body_seconds);
  const auto& message = parser_->get();
  const std::string encoding =
      lower(std::string_view(message[http::field::content_encoding].data(),
                             message[http::field::content_encoding].size()));
  if (!encoding.empty() && encoding != "identity") {
    fail(415, "Content-Encoding is not supported; send the body as it is");
    return false;
  }
  const auto expect = message[http::field::expect];
  if (expect.empty() || parser_->is_done()) return true;
  if (!boost::beast::iequals(expect, "100-continue")) {
    fail(417, "the only expectation that is understood is 100-continue");
    return false;
  }
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  writing_ = true;
  net::async_write(socket_, net::buffer(kContinue.data(), kContinue.size()),
                   [self = shared_from_this()](ErrorCode error, size_t) {
                     self->writing_ = false;
                     if (error) return self->shut();
                     self->flush();
                   });
  return true;
}

bool HttpConnection::count_body() {
  const auto size = static_cast<int64_t>(parser_->get().body().size());
  const int64_t now = core_->body_bytes += size - counted_;
  counted_ = size;
  return now <= HttpCore::kMaxBodies;
}

HttpRequest HttpConnection::make_request() {
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  for (const auto& field : message)
    request.headers.emplace_back(lower(std::string(field.name_string())),
                                 std::string(field.value()));
  request.request_id = sane_request_id(request.header("x-request-id"));
  request.body = std::move(message.body());
  return request;
}

void HttpConnection::dispatch() {
  deadline_.cancel();
  ++armed_;
  const std::string raw_target(parser_->get().target());
  const std::string_view target = origin_form(raw_target);
  const size_t mark = target.find('?');
  auto path = percent_decoded(target.substr(0, mark));
  if (!path) return fail(400, "the path of the request is not valid");
  HttpRequest request = make_request();
  request.path = std::move(*path);
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  state_ = State::kBusy;
  self_ = shared_from_this();
  ++core_->open_requests;
  exchange_ = std::make_shared<HttpExchange>(core_, weak_from_this(), request.method == "HEAD",
                                             parser_->get().version() >= 11,
                                             parser_->get().keep_alive(), request.request_id);
  net::post(core_->workers,
            [core = core_, exchange = exchange_, request = std::move(request)]() mutable {
              auto reply = std::make_shared<ReplyHandle>(std::move(exchange));
              try {
                core->handler(std::move(request), reply);
              } catch (const std::exception& e) {
                spdlog::error("a request handler threw: {}", escaped(e.what()));
                reply->send(core->failure(500, "internal error"));
              }
            });
  if (in_.size() < kMaxAhead) read();
}

void HttpConnection::flush() {
  if (writing_ || !exchange_ || state_ == State::kClosed) return;
  out_ = exchange_->take(&complete_);
  if (out_.empty()) {
    if (complete_) reply_done();
    return;
  }
  writing_ = true;
  write_deadline_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(core_->config.write_seconds)));
  write_deadline_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->shut();
  });
  net::async_write(
      socket_, net::buffer(out_),
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
  const bool keep = exchange_->keep_alive();
  exchange_->close(/*complete=*/true);
  exchange_.reset();
  const auto self = std::exchange(self_, nullptr);
  if (state_ == State::kBusy) --core_->open_requests;
  if (!keep) return linger();
  next_request();
}

void HttpConnection::fail(ErrorCode error) {
  if (error == http::error::body_limit)
    return fail(413, fmt::format("the body is larger than {} bytes", core_->config.max_body));
  if (error == http::error::header_limit)
    return fail(431, fmt::format("the header is larger than {} bytes", core_->config.max_header));
  fail(400, "not a valid HTTP request: " + error.message());
}

// An answer to a request that no handler sees; the connection does not survive it.
void HttpConnection::fail(int status, const std::string& why) {
  if (exchange_ || state_ == State::kClosed) return;
  state_ = State::kLinger;
  deadline_.cancel();
  ++armed_;
  exchange_ =
      std::make_shared<HttpExchange>(core_, weak_from_this(), /*head=*/false,
                                     /*chunked=*/false, /*keep_alive=*/false, sane_request_id(""));
  exchange_->send(core_->failure(status, why));
}

void HttpConnection::linger() {
  state_ = State::kLinger;
  ErrorCode ignored;
  socket_.shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  arm(kLingerSeconds);
  in_.consume(in_.size());
  read();
}

void HttpConnection::shut() {
  if (state_ == State::kClosed) return;
  const bool busy = state_ == State::kBusy;
  const auto self = std::exchange(self_, nullptr);
  state_ = State::kClosed;
  ErrorCode ignored;
  socket_.close(ignored);
  deadline_.cancel();
  write_deadline_.cancel();
  if (busy) --core_->open_requests;
  if (auto exchange = std::exchange(exchange_, nullptr)) exchange->close(/*complete=*/false);
}

void HttpConnection::arm(double seconds) {
  deadline_.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  deadline_.async_wait([self = shared_from_this(), armed = ++armed_](ErrorCode error) {
    if (!error && armed == self->armed_) self->on_deadline();
  });
}

void HttpConnection::on_deadline() {
  if (state_ == State::kHeader || state_ == State::kBody)
    return fail(408, "the request did not arrive in time");
  shut();
}

}  // namespace skiff
