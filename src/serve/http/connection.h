// serve/http/connection.h -- one client connection: it reads requests, keeps deadlines, and has
// one reply at a time. Private to the HTTP server.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
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

#include "serve/http/body.h"
#include "serve/http/body_count.h"
#include "serve/http/date.h"
#include "serve/http/head.h"
#include "serve/http/held.h"
#include "serve/http/places.h"
#include "serve/http/server.h"
#include "serve/http/stream.h"

namespace skiff {

class HttpConnection;

// What connections share. Outlives them: each holds a reference.
struct HttpCore {
  HttpCore(HttpConfig config, HttpHooks hooks)
      : config(std::move(config)),
        hooks(std::move(hooks)),
        workers(static_cast<size_t>(this->config.worker_threads)),
        places(this->config.max_connections, this->config.probe_places),
        held(this->config.max_held) {}

  std::shared_ptr<net::ssl::context> tls_now() const {
    std::lock_guard lock(mutex);
    return tls;
  }
  // What came too late for workers.join() would hold this for ever.
  void work(std::function<void()> job) {
    std::lock_guard lock(mutex);
    if (!stopped) net::post(workers, std::move(job));
  }

  const HttpConfig config;
  const HttpHooks hooks;
  net::io_context io;
  net::thread_pool workers, quick{1};
  HttpPlaces places;
  HttpClock clock;
  HeldReplies held;
  bool stopped = false;  // guarded by mutex: workers end
  std::atomic<int> open_requests{0};
  const std::shared_ptr<BodyCount::Sum> body_bytes = std::make_shared<BodyCount::Sum>(0);
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::shared_ptr<net::ssl::context> tls;  // by mutex; null: plain
};

// How the reply to one request is framed, and what its head carries.
struct ReplyFraming {
  bool head = false;        // the request was HEAD: no body follows
  bool chunked = false;     // streams are chunked; else the end of the connection ends them
  bool keep_alive = false;  // the client may send another request
  std::string request_id;
  HttpHeaders extra;
};

// The state of one reply, shared by the connection (which owns the socket) and the handle that the
// handler holds. Any thread may append; the connection takes. What the handler calls never throws.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection,
               ReplyFraming framing);

  void send(HttpResponse response) noexcept;
  void begin_stream(HttpResponse head) noexcept;
  bool write(std::string part) noexcept;
  void end_stream() noexcept;
  void on_close(std::function<void()> closed);
  void abandon() noexcept;  // the handler let go

  // The request on its way to a worker. It is dropped with its body if the client leaves first.
  void park(HttpRequest request);
  std::optional<HttpRequest> unpark();

  // Memory ran out: nothing more can be said. The connection finds it at its next look.
  void give_up() noexcept { given_up_ = true; }
  bool given_up() const { return given_up_; }
  void on_worker(std::function<void()> job) { core_->work(std::move(job)); }

  // For the connection, on its strand.
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
  std::function<void()> on_close_;
  std::optional<HttpRequest> parked_;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `client` is the peer's address, for the record.
  HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket, std::string client,
                 HttpPlace place);
  ~HttpConnection();

  void start();
  void close();          // any thread
  void refuse_upload();  // any thread: answers 503 if a body is on its way
  void wake();           // any thread: sends what the exchange has

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kHandshake, kIdle, kHeader, kBody, kBusy, kLinger, kClosed };

  template <class Work>
  auto guarded(Work work);
  auto executor() { return stream_.executor(); }
  void flush();
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
  size_t body_limit() const;
  bool name_request();
  void dispatch();
  void call_handler(HttpLane lane);
  HttpLane lane() const;
  void set_open(bool open);
  void fail(int status, const std::string& why);
  void fail(HttpResponse response);
  HttpHeaders extra_headers() const;
  void on_written(boost::system::error_code error);
  void reply_done();
  void record(const HttpExchange& exchange, bool complete);
  void broken(const char* why) noexcept;
  void linger();
  void discard();
  void shut();
  void arm(double seconds);
  double body_allowance() const;
  void look();
  void on_deadline();
  double seconds_since(Clock::time_point begin) const;

  const std::shared_ptr<HttpCore> core_;
  HttpStream stream_;
  const std::string client_;
  const HttpPlace place_;
  net::steady_timer deadline_, write_deadline_;
  std::vector<char> fresh_;  // where a read under way puts bytes: apart from in_, which is
                             // consumed meanwhile when requests are pipelined
  boost::beast::flat_buffer in_;
  std::string out_;  // being written
  std::optional<HeadReader> head_;
  std::optional<BodyReader> body_;
  std::shared_ptr<BodyCount> counted_;  // the share of body_
  HttpRequest request_;                 // complete but for its body once the head has been read
  HttpRecord record_;                   // what will be logged about it
  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<HttpConnection> self_;  // while busy: no read may be pending then
  State state_ = State::kIdle;
  bool reading_ = false, writing_ = false, complete_ = false;
  bool open_ = false;   // counts among core_->open_requests
  uint64_t armed_ = 0;  // distinguishes a timer that was set again from one that fired
  size_t discarded_ = 0;
  Clock::time_point head_began_, body_began_;
};

}  // namespace skiff
