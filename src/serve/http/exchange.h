// serve/http/exchange.h -- the reply to one request, between handler and connection. Private to the
// HTTP server.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "serve/http/core.h"
#include "serve/http/server.h"

namespace skiff::http {

class HttpConnection;

// How the reply to one request is framed, and what its head carries.
struct ReplyFraming {
  bool head = false;        // the request was HEAD: no body follows
  bool chunked = false;     // streams are chunked; else the end of the connection ends them
  bool keep_alive = false;  // the client may send another request
  std::string request_id;
  HttpHeaders extra;
};

// The state of one reply, shared by the connection (which owns the socket) and the handle that the
// handler holds. Any thread may append bytes; the connection sends them. What the handler calls
// never throws.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection,
               ReplyFraming framing);

  void send(HttpResponse response) noexcept;
  void begin_stream(const HttpResponse& head) noexcept;
  bool write(const std::string& part) noexcept;
  void end_stream() noexcept;
  void when_sent(std::function<void()> sent);
  void on_close(std::function<void()> closed);
  void abandon() noexcept;  // the handler dropped its last reference

  // Keep the request while it waits for a worker. It is dropped with its body if the client leaves
  // first.
  void park(HttpRequest request);
  std::optional<HttpRequest> unpark();

  // Memory ran out, so the reply cannot be completed. The connection polls given_up().
  void give_up() noexcept { given_up_ = true; }
  bool given_up() const { return given_up_; }
  void on_worker(std::function<void()> job) { core_->work(std::move(job)); }

  // Called by the connection, on its strand, when all that it took before has been written.
  std::string take(bool* complete);
  void close(bool complete);
  bool keep_alive() const { return keep_alive_; }
  int status() const { return status_; }  // 0 before the head of the reply is made

 private:
  void wake();
  bool hold(const HttpResponse& response);
  void append_head(const HttpResponse& response, const std::string& framing);
  void append_part(const std::string& part);

  const std::shared_ptr<HttpCore> core_;
  const std::weak_ptr<HttpConnection> connection_;
  const ReplyFraming framing_;
  std::atomic<bool> keep_alive_;
  std::atomic<bool> given_up_{false};
  std::atomic<int> status_{0};
  std::mutex mutex_;
  std::atomic<uint64_t> held_{0};  // ticket of core_->held
  std::string unsent_;             // guarded by mutex_, as are the rest
  bool began_ = false, ended_ = false, closed_ = false, woken_ = false;
  std::function<void()> on_close_, on_sent_;
  std::optional<HttpRequest> parked_;
};

}  // namespace skiff::http
