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

namespace skiff::http {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;     // "GET"
  std::string path;       // percent-decoded, without the query
  std::string query;      // as sent
  std::string authority;  // from an absolute target ("http://HOST/path"), which overrides Host
  HttpHeaders headers;    // names in lower case; trailers of a chunked body are not among them
  std::string body;
  std::string request_id;  // x-request-id of the client if it is valid, else a random one
  uint64_t serial = 0;     // number of this request since start, from 1; HttpRecord has the same
  std::string client;      // ADDRESS:PORT of the peer
  size_t door = 0;  // the port that it came to: 0 is HttpConfig::port, 1 the first of the others
  std::optional<int> replica;  // the replica of the engine that must compute it; none: any
  // While this lives, `body` counts among the bodies in memory (HttpConfig::max_bodies). Keep it as
  // long as the body.
  std::shared_ptr<const void> counted;

  // Empty if absent.
  std::string_view header(std::string_view lower_case_name) const;
};

// Returns `given` if it is 1 to 128 characters that are safe in headers and logs, else a random
// name.
std::string sane_request_id(std::string_view given);

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// The reply to one request. Thread-safe. Exactly one of send() or
// begin_stream() .. end_stream() is called; dropping the last reference before that answers 500.
// No function throws: if memory runs out the connection is closed.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpResponse response) = 0;
  // `head.body` is the first part of a chunked body.
  virtual void begin_stream(HttpResponse head) = 0;
  // Parts that are ready at the same time are sent together. False once the client has left, or was
  // disconnected because more than HttpConfig::max_unsent bytes wait for it.
  virtual bool write(std::string part) = 0;
  virtual void end_stream() = 0;
  // Calls `sent` once, on an I/O thread, when the kernel has taken all that was written so far; not
  // at all if the client leaves first (see on_close). A later call replaces an earlier one. So
  // whoever passes on a long body holds little of it in memory.
  virtual void when_sent(std::function<void()> sent) = 0;
  // `closed` is called once if the client leaves before the reply is complete, at once if it has
  // left already. It runs on an I/O thread and must be quick.
  virtual void on_close(std::function<void()> closed) = 0;
  // Runs `job` on a worker thread, for work that is too long for the caller's thread. The job is
  // dropped if the server has stopped; it must not throw.
  virtual void on_worker(std::function<void()> job) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

// The log entry of a request, made when its reply has been sent or its client has left.
struct HttpRecord {
  std::string method,
      target;  // as the client sent them, without the query; "-" if no head could be read
  std::string request_id, client;
  uint64_t serial = 0;  // 0: no head could be read
  int status = 0;       // 0: the client left before a reply began
  uint64_t sent = 0;    // bytes of the reply, head and framing included
  double seconds = 0;   // since the first byte of the request
  bool complete = false;
};

// The thread on which the handler of a request runs.
enum class HttpLane {
  kIo,     // an I/O thread: for probes, which must be answered under any load
  kQuick,  // a thread of its own beside the workers: for what takes about a millisecond
  kWork,   // a worker: for everything else
  kLarge,  // one thread for requests with large bodies (HttpConfig::large_body), which may take
           // seconds; so few of them never keep the workers from small requests
  kAside,  // threads of HttpServer::aside(), which no request's handler runs on
};

// Callbacks of the server's user. All but `handler` and `failure` may be empty. All but `handler`
// run on I/O threads and must be quick.
struct HttpHooks {
  HttpHandler handler;
  // Makes the response to a request that never reaches the handler (400, 413, 431 ...).
  std::function<HttpResponse(int status, const std::string& why)> failure;
  // Called with a request whose head has been read and whose body has not; a response refuses it
  // before the body is read.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> early;
  // Called with every complete request; a response answers it in the handler's place, without a
  // worker.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> refuse;
  // May read the head only. A probe connection (HttpConfig::max_probe_connections) serves kIo
  // alone.
  std::function<HttpLane(const HttpRequest&)> lane;
  // Headers of the response to this request besides its own.
  std::function<HttpHeaders(const HttpRequest&)> headers;
  std::function<void(const HttpRecord&)> record;
};

struct HttpConfig {
  std::string host = "0.0.0.0";      // name or address; IPv6 with or without brackets
  uint16_t port = 8000;              // 0: any free port
  std::vector<uint16_t> more_ports;  // others with the same host, files and limits; 0: as above
  int io_threads = 2;
  int worker_threads = 2;                 // threads that run handlers
  size_t large_body = size_t{1} << 20;    // bytes from which a kWork request becomes kLarge
  size_t max_body = 16u << 20;            // bytes
  int64_t max_bodies = int64_t{1} << 30;  // bytes of all bodies in memory; then 503
  size_t max_header = 16u << 10;          // bytes
  int max_fields = 100;                   // header fields of a request
  size_t max_unsent = 4u << 20;  // unsent bytes of one stream; a slower client is disconnected
  // When max_connections are open, the one that has been idle longest is closed for another. If
  // each of them has a request under way, `max_probe_connections` more are accepted, for probes
  // alone.
  int max_connections = 4096;
  int max_probe_connections = 16;
  double header_seconds = 30;   // from the first byte of a request to the end of its header
  double body_seconds = 120;    // from there to the end of its body
  double body_rate = 1024;      // average bytes per second below which a body is too slow ...
  double body_grace = 10;       // ... after this many seconds
  double idle_seconds = 180;    // lifetime of a kept-alive connection without a request
  double write_seconds = 120;   // longest time in which a client takes nothing of its reply
  std::string tls_certificate;  // PEM files; both or neither
  std::string tls_key;

  // Bytes of whole replies that clients have not read yet, over all connections; see
  // serve/http/held.h.
  int64_t max_held = int64_t{1} << 30;
};

class HttpServer {
 public:
  // Binds and listens; no request is read before start(). Throws LoadError naming a port, or
  // what is wrong with the TLS files.
  HttpServer(HttpConfig config, HttpHooks hooks);
  ~HttpServer();  // calls stop()

  uint16_t port() const;
  std::vector<uint16_t> ports() const;  // by HttpRequest::door
  void start();
  // Answers everything with "connection: close" from now on, and uploads under way with 503.
  // Connections are still accepted, so that probes get an answer and not a refusal.
  void begin_drain();
  // Requests whose body or reply is not complete. A refused upload counts until its sender has
  // closed the connection, for at most 3 s: closing it earlier could destroy the answer.
  int open_requests() const;
  int connections() const;
  // Runs `job`, which must not throw, on one of half as many threads as there are workers, for what
  // takes as long as its client decides: requests do not wait for it. The job is dropped if the
  // server has stopped. Any thread.
  void aside(std::function<void()> job);
  // Reads the TLS files again, for later connections. On an error the old ones stay in use.
  // Any thread.
  Status reload_tls();
  // Closes everything and ends the threads. Idempotent. Not from a handler.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::http
