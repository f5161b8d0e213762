// serve/http_server.h -- HTTP/1.1 over TCP: connections, limits, deadlines, streaming bodies. Knows
// nothing of what is served. Boost.Beast stays inside http_server.cc and http_connection.cc.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skiff {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // percent-decoded, without the query
  std::string query;    // as sent
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string request_id;  // x-request-id if it was sane, else one of ours

  // Empty if absent.
  std::string_view header(std::string_view lower_case_name) const;
};

// `given` if it is 1 to 128 harmless characters, else a random name: it goes into headers and logs.
std::string sane_request_id(std::string_view given);

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// The way back to one client, for one request. Thread-safe. Exactly one of send() or
// begin_stream() .. end_stream() is called; dropping the last reference before that answers 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpResponse response) = 0;
  // `head.body` is the first part of a chunked body.
  virtual void begin_stream(HttpResponse head) = 0;
  // Parts that are ready together leave together. False once the client is gone, or was dropped
  // because more than HttpConfig::max_unsent bytes wait for it.
  virtual bool write(std::string part) = 0;
  virtual void end_stream() = 0;
  // Called once if the client goes away before the reply is complete: at once if it has gone.
  // Runs on an I/O thread; must be quick.
  virtual void on_close(std::function<void()> closed) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

struct HttpConfig {
  std::string host = "0.0.0.0";
  uint16_t port = 8000;  // 0: any free port
  int io_threads = 2;
  int worker_threads = 2;         // where handlers run
  size_t max_body = 16u << 20;    // bytes
  size_t max_header = 16u << 10;  // bytes
  size_t max_unsent = 4u << 20;   // bytes of a stream that a slow client may let pile up
  int max_connections = 4096;     // more are answered 503 and closed
  double header_seconds = 30;     // from the first byte of a request to the end of its header
  double body_seconds = 120;      // from there to the end of its body
  double idle_seconds = 180;      // a kept-alive connection without a request
  double write_seconds = 120;     // one write without progress
  std::string tls_certificate;    // PEM files; both or neither
  std::string tls_key;
};

class HttpServer {
 public:
  // Binds and listens; no request is read before start(). Throws LoadError naming the port.
  // `failure` makes the response to a request that never reached a handler (400, 413, 431 ...).
  HttpServer(HttpConfig config, HttpHandler handler,
             std::function<HttpResponse(int status, const std::string& why)> failure);
  ~HttpServer();  // stop()

  uint16_t port() const;
  void start();
  // Takes no new connections, and answers what already came with "connection: close".
  void stop_accepting();
  // Requests whose reply is not complete.
  int open_requests() const;
  int connections() const;
  // Closes everything and ends the threads. Idempotent. Not from a handler.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff
