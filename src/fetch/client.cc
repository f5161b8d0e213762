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
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <exception>
#include <optional>

#include "base/load_error.h"

namespace skiff::fetch {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using Tcp = boost::beast::tcp_stream;
using Tls = boost::beast::ssl_stream<Tcp>;

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

// A body that is taken out piece by piece. Beast's own string_body reserves memory for all that
// Content-Length says before the first byte is read, which fails for a file larger than the memory.
struct PieceBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>&, value_type& piece) : piece_(piece) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t before = piece_.size();
      for (const auto buffer : boost::beast::buffers_range_ref(buffers))
        piece_.append(static_cast<const char*>(buffer.data()), buffer.size());
      return piece_.size() - before;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& piece_;
  };
};

// An exchange under way, and what comes of it.
struct Exchange {
  const Request& request;
  const Client::OnHead& on_head;
  const Client::OnBody& on_body;
  Response response;
  std::optional<Error> stopped;  // by a callback
};

}  // namespace

std::string_view Response::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

struct Client::Impl {
  explicit Impl(const Options& given) : options(given) {
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

  net::awaitable<void> run(Exchange& exchange);
  net::awaitable<void> connect(Tcp& stream, const Url& url);
  template <class Stream>
  net::awaitable<void> talk(Stream& stream, Exchange& exchange);

  const Options options;
  net::ssl::context tls{net::ssl::context::tls_client};
  net::io_context io{1};
};

net::awaitable<void> Client::Impl::connect(Tcp& stream, const Url& url) {
  net::ip::tcp::resolver resolver(io);
  const auto found = co_await resolver.async_resolve(url.host, url.port, net::use_awaitable);
  stream.expires_after(nanoseconds(options.connect_seconds));
  co_await stream.async_connect(found, net::use_awaitable);
}

net::awaitable<void> Client::Impl::run(Exchange& exchange) {
  const Url& url = exchange.request.url;
  if (!url.secure) {
    Tcp stream(io);
    co_await connect(stream, url);
    co_await talk(stream, exchange);
    co_return;
  }
  Tls stream(io, tls);
  stream.set_verify_callback(net::ssl::host_name_verification(url.host));
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  co_await connect(stream.next_layer(), url);
  stream.next_layer().expires_after(nanoseconds(options.connect_seconds));
  co_await stream.async_handshake(net::ssl::stream_base::client, net::use_awaitable);
  co_await talk(stream, exchange);
}

template <class Stream>
net::awaitable<void> Client::Impl::talk(Stream& stream, Exchange& exchange) {
  Tcp& tcp = boost::beast::get_lowest_layer(stream);
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
  tcp.expires_after(nanoseconds(options.idle_seconds));
  co_await http::async_write(stream, message, net::use_awaitable);

  boost::beast::flat_buffer buffer;
  http::response_parser<PieceBody> parser;
  parser.body_limit(boost::none);
  parser.header_limit(static_cast<uint32_t>(options.max_head));
  if (request.method == "HEAD") parser.skip(true);
  bool headed = false;
  do {
    tcp.expires_after(nanoseconds(options.idle_seconds));
    co_await http::async_read_some(stream, buffer, parser, net::use_awaitable);
    if (!parser.is_header_done()) continue;
    if (!std::exchange(headed, true)) {
      exchange.response = head_of(parser.get());
      if (const Status go = exchange.on_head(exchange.response); !go) {
        exchange.stopped = go.error();
        co_return;
      }
    }
    std::string& fresh = parser.get().body();
    if (!fresh.empty())
      if (const Status go = exchange.on_body(fresh); !go) {
        exchange.stopped = go.error();
        co_return;
      }
    fresh.clear();
  } while (!parser.is_done());
}

Client::Client(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

Result<Response> Client::exchange(const Request& request, const OnHead& on_head,
                                  const OnBody& on_body) {
  Exchange exchange{request, on_head, on_body, {}, {}};
  std::exception_ptr failure;
  impl_->io.restart();
  net::co_spawn(impl_->io, impl_->run(exchange), [&](const std::exception_ptr& e) { failure = e; });
  impl_->io.run();
  if (exchange.stopped) return *exchange.stopped;
  if (!failure) return std::move(exchange.response);
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& e) {
    return Error{Code::kExhausted,
                 fmt::format("{} {}: {}", request.method, request.url.text(), e.code().message()),
                 "url"};
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
