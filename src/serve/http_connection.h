// serve/http_connection.h -- one client connection: a reader that feeds the parser, deadlines, and
// one reply at a time. Private to the HTTP server; the only header that shows Boost.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "serve/http_server.h"

namespace skiff {

namespace net = boost::asio;
using StreamSocket = net::basic_stream_socket<net::ip::tcp, net::strand<net::any_io_executor>>;

class HttpConnection;

// What connections share. Outlives them: each holds a reference.
struct HttpCore {
  HttpCore(HttpConfig config, HttpHandler handler,
           std::function<HttpResponse(int, const std::string&)> failure)
      : config(std::move(config)),
        handler(std::move(handler)),
        failure(std::move(failure)),
        workers(static_cast<size_t>(this->config.worker_threads)) {}

  // Bytes of request bodies in memory, of all connections; more is answered 503.
  static constexpr int64_t kMaxBodies = int64_t{1} << 30;

  const HttpConfig config;
  const HttpHandler handler;
  const std::function<HttpResponse(int, const std::string&)> failure;
  net::io_context io;
  net::thread_pool workers;
  std::atomic<int> open_requests{0};
  std::atomic<int64_t> body_bytes{0};
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections;  // by mutex
};

// The state of one reply, shared by the connection (which owns the socket) and the handle that the
// handler holds. Any thread may append; the connection takes.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection, bool head,
               bool chunked, bool keep_alive, std::string request_id);

  void send(HttpResponse response);
  void begin_stream(HttpResponse head);
  bool write(std::string part);
  void end_stream();
  void on_close(std::function<void()> closed);
  void abandon();  // the handler let go

  // For the connection, on its strand.
  std::string take(bool* complete);
  void close(bool complete);
  bool keep_alive() const { return keep_alive_; }

 private:
  void wake();
  void append_head(const HttpResponse& response, const std::string& framing);
  void append_part(const std::string& part);

  const std::shared_ptr<HttpCore> core_;
  const std::weak_ptr<HttpConnection> connection_;
  const bool head_, chunked_;
  std::atomic<bool> keep_alive_;
  const std::string request_id_;
  std::mutex mutex_;
  std::string unsent_;  // guarded by mutex_, as are the rest
  bool began_ = false, ended_ = false, closed_ = false, woken_ = false;
  std::function<void()> on_close_;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket);
  ~HttpConnection();

  void start();
  void close();                                     // any thread
  void flush();                                     // on the strand: sends what the exchange has
  void refuse(int status, const std::string& why);  // before start(): answers and closes
  auto executor() { return socket_.get_executor(); }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kIdle, kHeader, kBody, kBusy, kLinger, kClosed };

  void next_request();
  void read();
  void on_read(boost::system::error_code error, size_t bytes);
  void feed();
  bool after_header();
  void dispatch();
  void fail(int status, const std::string& why);
  void fail(boost::system::error_code error);
  void on_written(boost::system::error_code error);
  void reply_done();
  void linger();
  void shut();
  void arm(double seconds);
  void on_deadline();
  bool count_body();
  HttpRequest make_request();

  const std::shared_ptr<HttpCore> core_;
  StreamSocket socket_;
  net::steady_timer deadline_, write_deadline_;
  std::vector<char> fresh_;  // where a read under way puts bytes: apart from in_, which is
                             // consumed meanwhile when requests are pipelined
  boost::beast::flat_buffer in_;
  std::string out_;  // being written
  std::optional<Parser> parser_;
  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<HttpConnection> self_;  // while busy: no read may be pending then
  State state_ = State::kIdle;
  bool reading_ = false, writing_ = false, complete_ = false;
  uint64_t armed_ = 0;   // tells a timer that was set again from one that fired
  int64_t counted_ = 0;  // of core_->body_bytes
  size_t discarded_ = 0;
};

// Nothing if the escapes are wrong or hide control bytes.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace skiff
