#include "fetch/client.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <optional>

#include "base/load_error.h"
#include "base/seconds.h"
#include "fetch/piece_body.h"

namespace skiff::fetch {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using Tcp = boost::beast::tcp_stream;
using Tls = boost::beast::ssl_stream<Tcp>;
using Clock = std::chrono::steady_clock;
using Parser = http::response_parser<PieceBody>;
using Endpoints = std::vector<net::ip::tcp::endpoint>;

constexpr int kMaxInterim = 16;  // responses 1xx before the answer

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

Response head_of(const http::response_header<>& head) {
  Response response{.status = static_cast<int>(head.result_int()), .headers = {}};
  for (const auto& field : head) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  return response;
}

// An exchange under way, and what comes of it.
struct Exchange {
  const Request& request;
  const Client::OnHead& on_head;
  const Client::OnBody& on_body;
  const Clock::time_point began = Clock::now();
  uint64_t received = 0;  // bytes of the body
  Response response;
  std::optional<Error> stopped;  // why it was given up

  // Gives it up unless `go` is ok. Returns whether it goes on.
  bool goes_on(const Status& go) {
    if (!go) stopped = go.error();
    return static_cast<bool>(go);
  }
  Error too_long() const {
    return trouble(fmt::format("it is not over after {:.1f} s", seconds_since(began)));
  }
  Error trouble(const std::string& why) const {
    return {Code::kExhausted, fmt::format("{} {}: {}", request.method, request.url.text(), why),
            "url"};
  }
};

}  // namespace

std::string_view Response::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

struct Client::Impl {
  Impl(const Options& given, FindAddresses find) : options(given), names(std::move(find)) {
    SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
    tls.set_verify_mode(net::ssl::verify_peer);
    try {
      if (options.ca_file.empty())
        tls.set_default_verify_paths();
      else
        tls.load_verify_file(options.ca_file);
    } catch (const boost::system::system_error& e) {
      fail_load("--ca-file {}: no PEM file with certificates ({})", options.ca_file,
                e.code().message());
    }
  }

  double left(const Exchange& exchange) const;
  bool arm(Tcp& tcp, Exchange& exchange, double seconds) const;
  Result<Endpoints> find(const Url& url, double seconds);
  net::awaitable<void> run(Exchange& exchange, const Endpoints& found);
  net::awaitable<void> connect(Tcp& stream, Exchange& exchange, const Endpoints& found);
  template <class Stream>
  net::awaitable<void> talk(Stream& stream, Exchange& exchange);
  template <class Stream>
  net::awaitable<void> send(Stream& stream, Exchange& exchange);
  template <class Stream>
  net::awaitable<void> read_some(Stream& stream, Exchange& exchange,
                                 boost::beast::flat_buffer& buffer, Parser& parser);
  template <class Stream>
  net::awaitable<void> read_head(Stream& stream, Exchange& exchange,
                                 boost::beast::flat_buffer& buffer, std::optional<Parser>& parser);

  const Options options;
  NameLookup names;
  net::ssl::context tls{net::ssl::context::tls_client};
  net::io_context io{1};
};

// The seconds that the whole exchange may still take.
double Client::Impl::left(const Exchange& exchange) const {
  const double earned =
      options.body_rate > 0 ? static_cast<double>(exchange.received) / options.body_rate : 0;
  return options.total_seconds + earned - seconds_since(exchange.began);
}

// Bounds what follows, or gives the exchange up and returns false.
bool Client::Impl::arm(Tcp& tcp, Exchange& exchange, double seconds) const {
  if (exchange.stopped) return false;
  const double most = left(exchange);
  if (most <= 0) exchange.stopped = exchange.too_long();
  tcp.expires_after(nanoseconds(std::clamp(most, 0.0, seconds)));
  return most > 0;
}

Result<Endpoints> Client::Impl::find(const Url& url, double seconds) {
  const auto found = names.find(url.host, seconds);
  if (!found) return found.error();
  uint16_t port = 0;
  std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
  Endpoints endpoints;
  for (const std::string& address : *found)
    endpoints.emplace_back(net::ip::make_address(address), port);
  return endpoints;
}

net::awaitable<void> Client::Impl::connect(Tcp& stream, Exchange& exchange,
                                           const Endpoints& found) {
  if (arm(stream, exchange, options.connect_seconds))
    co_await stream.async_connect(found, net::use_awaitable);
}

net::awaitable<void> Client::Impl::run(Exchange& exchange, const Endpoints& found) {
  const Url& url = exchange.request.url;
  if (!url.secure) {
    Tcp stream(io);
    co_await connect(stream, exchange, found);
    co_await talk(stream, exchange);
    co_return;
  }
  Tls stream(io, tls);
  stream.set_verify_callback(net::ssl::host_name_verification(url.host));
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  co_await connect(stream.next_layer(), exchange, found);
  if (arm(stream.next_layer(), exchange, options.connect_seconds))
    co_await stream.async_handshake(net::ssl::stream_base::client, net::use_awaitable);
  co_await talk(stream, exchange);
}

template <class Stream>
net::awaitable<void> Client::Impl::send(Stream& stream, Exchange& exchange) {
  const Request& request = exchange.request;
  http::request<http::string_body> message;
  message.method_string(request.method);
  message.target(request.url.target);
  message.version(11);
  message.set(http::field::host, request.url.authority());
  message.set(http::field::connection, "close");
  message.set(http::field::user_agent, "skiff");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = request.body;
  message.prepare_payload();
  if (arm(boost::beast::get_lowest_layer(stream), exchange, options.idle_seconds))
    co_await http::async_write(stream, message, net::use_awaitable);
}

template <class Stream>
net::awaitable<void> Client::Impl::read_some(Stream& stream, Exchange& exchange,
                                             boost::beast::flat_buffer& buffer, Parser& parser) {
  if (arm(boost::beast::get_lowest_layer(stream), exchange, options.idle_seconds))
    co_await http::async_read_some(stream, buffer, parser, net::use_awaitable);
}

// Reads up to the head of the answer, past the interim ones.
template <class Stream>
net::awaitable<void> Client::Impl::read_head(Stream& stream, Exchange& exchange,
                                             boost::beast::flat_buffer& buffer,
                                             std::optional<Parser>& parser) {
  for (int interim = 0; !exchange.stopped; ++interim) {
    parser.emplace();
    parser->body_limit(boost::none);
    parser->header_limit(static_cast<uint32_t>(options.max_head));
    if (exchange.request.method == "HEAD") parser->skip(true);
    while (!exchange.stopped && !parser->is_header_done())
      co_await read_some(stream, exchange, buffer, *parser);
    const unsigned status = parser->get().result_int();
    if (exchange.stopped || status >= 200) co_return;
    // It was not asked to switch protocols.
    if (status < 100 || status == 101 || interim == kMaxInterim)
      exchange.stopped = exchange.trouble(fmt::format("it answered {}, and nothing else", status));
  }
}

template <class Stream>
net::awaitable<void> Client::Impl::talk(Stream& stream, Exchange& exchange) {
  boost::beast::flat_buffer buffer;
  std::optional<Parser> parser;
  co_await send(stream, exchange);
  co_await read_head(stream, exchange, buffer, parser);
  if (exchange.stopped) co_return;
  exchange.response = head_of(parser->get());
  bool going = exchange.goes_on(exchange.on_head(exchange.response));
  while (going) {
    std::string& fresh = parser->get().body();
    exchange.received += fresh.size();
    if (!fresh.empty() && !exchange.goes_on(exchange.on_body(fresh))) co_return;
    fresh.clear();
    if (parser->is_done()) co_return;
    co_await read_some(stream, exchange, buffer, *parser);
    going = !exchange.stopped;
  }
}

Client::Client(const Options& options, FindAddresses find)
    : impl_(std::make_unique<Impl>(options, std::move(find))) {}
Client::~Client() = default;

Result<Response> Client::exchange(const Request& request, const OnHead& on_head,
                                  const OnBody& on_body) {
  Exchange exchange{request, on_head, on_body};
  const Options& options = impl_->options;
  const auto found =
      impl_->find(request.url, std::min(options.connect_seconds, options.total_seconds));
  if (!found) return exchange.trouble(found.error().what);
  std::exception_ptr failure;
  impl_->io.restart();
  net::co_spawn(impl_->io, impl_->run(exchange, *found),
                [&](const std::exception_ptr& e) { failure = e; });
  impl_->io.run();
  if (exchange.stopped) return *exchange.stopped;
  if (!failure) return std::move(exchange.response);
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& e) {
    if (impl_->left(exchange) <= 0) return exchange.too_long();
    return exchange.trouble(e.code().message());
  }
}

Result<std::pair<Response, std::string>> Client::fetch(const Request& request, size_t max_body) {
  std::string body;
  const auto take = [&](std::string_view piece) -> Status {
    if (body.size() + piece.size() > max_body)
      return Error{Code::kInvalid, fmt::format("{}: the answer has more than {} bytes",
                                               request.url.text(), max_body)};
    body += piece;
    return ok();
  };
  auto response = exchange(
      request, [](const Response&) { return ok(); }, take);
  if (!response) return response.error();
  return std::pair(std::move(*response), std::move(body));
}

}  // namespace skiff::fetch
