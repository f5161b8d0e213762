// serve/http_connection.h -- one client connection: it reads requests, keeps deadlines, and has
// one reply at a time. Private to the HTTP server.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "serve/http_body.h"
#include "serve/http_head.h"
#include "serve/http_server.h"
#include "serve/http_stream.h"

namespace skiff {

class HttpConnection;

// What connections share. Outlives them: each holds a reference.
struct HttpCore {
  HttpCore(HttpConfig config, HttpHooks hooks)
      : config(std::move(config)),
        hooks(std::move(hooks)),
        workers(static_cast<size_t>(this->config.worker_threads)) {}

  std::shared_ptr<net::ssl::context> tls_now() const {
    std::lock_guard lock(mutex);
    return tls;
  }

  // Bytes of request bodies in memory, of all connections; more is answered 503.
  static constexpr int64_t kMaxBodies = int64_t{1} << 30;

  const HttpConfig config;
  const HttpHooks hooks;
  net::io_context io;
  net::thread_pool workers;
  std::atomic<int> open_requests{0};
  std::atomic<int64_t> body_bytes{0};
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections;  // by mutex
  std::shared_ptr<net::ssl::context> tls;  // by mutex; null: plain
};

// The state of one reply, shared by the connection (which owns the socket) and the handle that the
// handler holds. Any thread may append; the connection takes.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection, bool head,
               bool chunked, bool keep_alive, std::string request_id, HttpHeaders extra);

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
  int status() const { return status_; }  // 0 before the head of the reply is made

 private:
  void wake();
  void append_head(const HttpResponse& response, const std::string& framing);
  void append_part(const std::string& part);

  const std::shared_ptr<HttpCore> core_;
  const std::weak_ptr<HttpConnection> connection_;
  const bool head_, chunked_;
  std::atomic<bool> keep_alive_;
  const std::string request_id_;
  const HttpHeaders extra_;
  std::atomic<int> status_{0};
  std::mutex mutex_;
  std::string unsent_;  // guarded by mutex_, as are the rest
  bool began_ = false, ended_ = false, closed_ = false, woken_ = false;
  std::function<void()> on_close_;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `client` is the peer's address, for the record.
  HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket, std::string client);
  ~HttpConnection();

  void start();
  void close();                                     // any thread
  void flush();                                     // on the strand: sends what the exchange has
  void refuse(int status, const std::string& why);  // before start(): answers and closes
  auto executor() { return stream_.executor(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kHandshake, kIdle, kHeader, kBody, kBusy, kLinger, kClosed };

  void handshake();
  void next_request();
  void read();
  void on_read(boost::system::error_code error, size_t bytes);
  void feed();
  bool take_head();
  bool judge_head();
  bool take_body();
  void say_continue();
  bool count_body();
  bool name_request();
  void dispatch();
  void fail(int status, const std::string& why);
  void fail(HttpResponse response);
  HttpHeaders extra_headers() const;
  void on_written(boost::system::error_code error);
  void reply_done();
  void record(bool complete);
  void linger();
  void discard();
  void shut();
  void arm(double seconds);
  double body_allowance() const;
  void on_deadline();
  double seconds_since(Clock::time_point begin) const;

  const std::shared_ptr<HttpCore> core_;
  HttpStream stream_;
  const std::string client_;
  net::steady_timer deadline_, write_deadline_;
  std::vector<char> fresh_;  // where a read under way puts bytes: apart from in_, which is
                             // consumed meanwhile when requests are pipelined
  boost::beast::flat_buffer in_;
  std::string out_;  // being written
  std::optional<HeadReader> head_;
  std::optional<BodyReader> body_;
  HttpRequest request_;  // complete but for its body once the head has been read
  HttpRecord record_;    // of the request under way
  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<HttpConnection> self_;  // while busy: no read may be pending then
  State state_ = State::kIdle;
  bool reading_ = false, writing_ = false, complete_ = false;
  uint64_t armed_ = 0;   // tells a timer that was set again from one that fired
  int64_t counted_ = 0;  // of core_->body_bytes
  size_t discarded_ = 0;
  Clock::time_point head_began_, body_began_;
};

}  // namespace skiff
