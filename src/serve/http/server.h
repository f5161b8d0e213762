// serve/http/server.h -- HTTP/1.1 over TCP or TLS: connections, limits, deadlines, streaming
// bodies. Knows nothing of what is served. Boost stays behind it, in private headers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace skiff {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;     // "GET"
  std::string path;       // percent-decoded, without the query
  std::string query;      // as sent
  std::string authority;  // of an absolute target ("http://HOST/path"), which overrules Host
  HttpHeaders headers;    // names in lower case; trailers of a chunked body are not among them
  std::string body;
  std::string request_id;  // x-request-id if it was sane, else one of ours
  // While it lives, `body` counts among the bodies in memory (HttpConfig::max_bodies): whoever
  // keeps the body keeps this.
  std::shared_ptr<const void> counted;

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
// Nothing throws: where memory runs out the connection is closed.
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
  // Runs `job` on a worker thread, for what takes longer than the caller's thread has time for.
  // Dropped if the server has stopped. `job` must not throw.
  virtual void on_worker(std::function<void()> job) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

// What every request leaves behind when its reply has left or its client has gone.
struct HttpRecord {
  std::string method, target;  // as sent, without the query; "-" if no head could be read
  std::string request_id, client;
  int status = 0;      // 0: the client went before a reply began
  uint64_t sent = 0;   // bytes of the reply, head and framing included
  double seconds = 0;  // since the first byte of the request
  bool complete = false;
};

// Where the handler of a request runs.
enum class HttpLane {
  kIo,     // on an I/O thread: probes, which must have an answer whatever else goes on
  kQuick,  // on a thread of its own, beside the workers: what takes about a millisecond
  kWork,   // on a worker: everything else
};

// What the server asks of those who use it. All but `handler` and `failure` may be empty. The hooks
// but `handler` run on I/O threads and must be quick.
struct HttpHooks {
  HttpHandler handler;
  // The response to a request that never reaches the handler (400, 413, 431 ...).
  std::function<HttpResponse(int status, const std::string& why)> failure;
  // Sees a request whose head is there and whose body is not; a response refuses it before the
  // body is read.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> early;
  // Sees every complete request; a response answers it in the handler's place, without a worker.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> refuse;
  // Looks at the head only. A probe place (HttpConfig::probe_places) serves kIo alone.
  std::function<HttpLane(const HttpRequest&)> lane;
  // What the response to this request carries beside its own headers.
  std::function<HttpHeaders(const HttpRequest&)> headers;
  std::function<void(const HttpRecord&)> record;
};

struct HttpConfig {
  std::string host = "0.0.0.0";  // a name or an address; IPv6 with or without brackets
  uint16_t port = 8000;          // 0: any free port
  int io_threads = 2;
  int worker_threads = 2;                 // where handlers run
  size_t max_body = 16u << 20;            // bytes
  int64_t max_bodies = int64_t{1} << 30;  // bytes of all bodies in memory; more is answered 503
  size_t max_header = 16u << 10;          // bytes
  int max_fields = 100;                   // header fields of a request
  size_t max_unsent = 4u << 20;           // bytes of a stream that a slow client may let pile up
  // When so many are open the one that has been silent longest makes room. If each has a request
  // under way, `probe_places` more may come, but only to ask for probes.
  int max_connections = 4096;
  int probe_places = 16;
  double header_seconds = 30;   // from the first byte of a request to the end of its header
  double body_seconds = 120;    // from there to the end of its body
  double body_rate = 1024;      // bytes a second that a body must average ...
  double body_grace = 10;       // ... after so many seconds
  double idle_seconds = 180;    // a kept-alive connection without a request
  double write_seconds = 120;   // one write without progress
  std::string tls_certificate;  // PEM files; both or neither
  std::string tls_key;

  // Bytes of whole replies that wait to be read, of all connections; see serve/http/held.h.
  int64_t max_held = int64_t{1} << 30;
};

class HttpServer {
 public:
  // Binds and listens; no request is read before start(). Throws LoadError naming the port, or
  // what is wrong with the TLS files.
  HttpServer(HttpConfig config, HttpHooks hooks);
  ~HttpServer();  // stop()

  uint16_t port() const;
  void start();
  // Answers everything with "connection: close" from now on, and uploads under way with 503.
  // Connections are still taken, so that probes get an answer and not a refusal.
  void begin_drain();
  // Requests whose body or reply is not complete. A refused upload is one until its sender has
  // hung up, for at most 3 s: closing first would take the answer away.
  int open_requests() const;
  int connections() const;
  // Reads the TLS files again, for connections to come. On an error the old ones stay in use.
  // Any thread.
  Status reload_tls();
  // Closes everything and ends the threads. Idempotent. Not from a handler.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff
