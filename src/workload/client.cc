#include "workload/client.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/seconds.h"
#include "workload/sse.h"

namespace skiff::workload {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Stream = boost::beast::tcp_stream;

constexpr size_t kMaxAnswer = 256u << 20;

// What came of sending a request over one connection.
struct Attempt {
  bool answered = false;  // a byte of the response came
  bool closed = false;    // the server had closed the connection
  bool reusable = false;  // the next request may go over it
};

bool server_closed(const boost::system::error_code& error) {
  return error == http::error::end_of_stream || error == net::error::eof ||
         error == net::error::connection_reset || error == net::error::connection_aborted ||
         error == net::error::broken_pipe;
}

}  // namespace

Result<ServerUrl> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    return Error{Code::kInvalid, fmt::format("{} is not an http:// URL", url), "url"};
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  ServerUrl out{.host = rest.substr(0, slash), .port = "80", .prefix = rest.substr(slash)};
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  if (out.prefix.ends_with("/v1")) out.prefix.resize(out.prefix.size() - 3);
  const size_t bracket = out.host.rfind(']');
  const size_t colon = out.host.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    out.port = out.host.substr(colon + 1);
    out.host.resize(colon);
  }
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty() || out.port.empty() ||
      out.port.find_first_not_of("0123456789") != std::string::npos)
    return Error{Code::kInvalid, fmt::format("{} names no host or no port", url), "url"};
  return out;
}

struct LoadClient::Impl {
  explicit Impl(Options options) : options(std::move(options)) {}

  double now() const { return seconds_since(start); }
  std::unique_ptr<Stream> kept_alive();  // null if there is none
  net::awaitable<std::unique_ptr<Stream>> connected();
  net::awaitable<void> one(std::string path, std::string body, Done done);
  // Opens a connection where `stream` is null.
  net::awaitable<Attempt> attempt(std::unique_ptr<Stream>& stream, const std::string& path,
                                  const std::string& body, StreamOutcome& out);
  net::awaitable<void> talk(Stream& stream, const std::string& path, const std::string& body,
                            StreamOutcome& out, Attempt& attempt);
  http::request<http::string_body> request(http::verb verb, const std::string& path) const;
  void renew(Stream& stream) const {
    stream.expires_after(std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options.timeout)));
  }

  const Options options;
  const Clock::time_point start = Clock::now();
  net::io_context io{1};
  std::vector<std::unique_ptr<Stream>> idle;  // kept-alive connections
};

http::request<http::string_body> LoadClient::Impl::request(http::verb verb,
                                                           const std::string& path) const {
  http::request<http::string_body> out{verb, options.server.prefix + path, 11};
  out.set(http::field::host, options.server.host + ":" + options.server.port);
  if (!options.api_key.empty()) out.set(http::field::authorization, "Bearer " + options.api_key);
  return out;
}

std::unique_ptr<Stream> LoadClient::Impl::kept_alive() {
  if (idle.empty()) return nullptr;
  auto stream = std::move(idle.back());
  idle.pop_back();
  return stream;
}

net::awaitable<std::unique_ptr<Stream>> LoadClient::Impl::connected() {
  auto stream = std::make_unique<Stream>(io);
  renew(*stream);
  net::ip::tcp::resolver resolver(io);
  const auto found =
      co_await resolver.async_resolve(options.server.host, options.server.port, net::use_awaitable);
  co_await stream->async_connect(found, net::use_awaitable);
  stream->socket().set_option(net::ip::tcp::no_delay(true));
  co_return stream;
}

net::awaitable<void> LoadClient::Impl::talk(Stream& stream, const std::string& path,
                                            const std::string& body, StreamOutcome& out,
                                            Attempt& attempt) {
  auto message = request(http::verb::post, path);
  message.set(http::field::content_type, "application/json");
  message.body() = body;
  message.prepare_payload();
  renew(stream);
  co_await http::async_write(stream, message, net::use_awaitable);
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswer);
  SseReader reader;
  do {
    renew(stream);
    co_await http::async_read_some(stream, buffer, parser, net::use_awaitable);
    attempt.answered = true;
    if (!parser.is_header_done()) continue;
    out.status = static_cast<int>(parser.get().result_int());
    std::string& fresh = parser.get().body();
    if (out.status != 200) continue;
    reader.feed(fresh, now(), out);
    fresh.clear();
  } while (!parser.is_done());
  if (out.status != 200)
    out.error = fmt::format("HTTP {}: {}", out.status, parser.get().body().substr(0, 300));
  else if (!reader.complete() && out.error.empty())
    out.error = "the stream ended without [DONE]";
  attempt.reusable = parser.get().keep_alive();
}

net::awaitable<Attempt> LoadClient::Impl::attempt(std::unique_ptr<Stream>& stream,
                                                  const std::string& path, const std::string& body,
                                                  StreamOutcome& out) {
  Attempt result;
  try {
    if (!stream) stream = co_await connected();
    co_await talk(*stream, path, body, out, result);
  } catch (const boost::system::system_error& e) {
    out.error = e.code().message();
    result.closed = server_closed(e.code());
  }
  co_return result;
}

net::awaitable<void> LoadClient::Impl::one(std::string path, std::string body, Done done) {
  StreamOutcome out;
  out.sent = now();
  auto stream = kept_alive();
  const bool kept = stream != nullptr;
  Attempt result = co_await attempt(stream, path, body, out);
  if (kept && result.closed && !result.answered) {
    out.reopened = true;
    out.error.clear();
    stream.reset();
    result = co_await attempt(stream, path, body, out);
  }
  out.done = now();
  if (result.reusable) {
    stream->expires_never();
    idle.push_back(std::move(stream));
  }
  done(std::move(out));
}

LoadClient::LoadClient(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
LoadClient::~LoadClient() = default;

double LoadClient::now() const { return impl_->now(); }

void LoadClient::post(const std::string& path, std::string body, Done done) {
  net::co_spawn(impl_->io, impl_->one(path, std::move(body), std::move(done)), net::detached);
}

void LoadClient::at(double time, std::function<void()> action) {
  auto timer = std::make_shared<net::steady_timer>(impl_->io);
  timer->expires_at(impl_->start + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(time)));
  timer->async_wait([timer, action = std::move(action)](boost::system::error_code error) {
    if (!error) action();
  });
}

void LoadClient::run() {
  impl_->io.restart();
  impl_->io.run();
}

Result<std::string> LoadClient::get(const std::string& path) {
  std::string body;
  std::string error;
  const auto ask = [&]() -> net::awaitable<void> {
    try {
      auto stream = co_await impl_->connected();
      co_await http::async_write(*stream, impl_->request(http::verb::get, path),
                                 net::use_awaitable);
      boost::beast::flat_buffer buffer;
      http::response<http::string_body> response;
      co_await http::async_read(*stream, buffer, response, net::use_awaitable);
      body = std::move(response.body());
      if (response.result_int() != 200) error = fmt::format("HTTP {}", response.result_int());
    } catch (const boost::system::system_error& e) {
      error = e.code().message();
    }
  };
  net::co_spawn(impl_->io, ask(), net::detached);
  run();
  if (!error.empty()) return Error{Code::kNotFound, fmt::format("GET {}: {}", path, error)};
  return body;
}

}  // namespace skiff::workload
