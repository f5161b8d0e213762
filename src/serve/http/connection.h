// serve/http/connection.h -- one client connection: it takes requests, keeps deadlines, and has
// one reply at a time. Private to the HTTP server.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serve/http/core.h"
#include "serve/http/deadline.h"
#include "serve/http/exchange.h"
#include "serve/http/head.h"
#include "serve/http/request_reader.h"
#include "serve/http/server.h"
#include "serve/http/stream.h"

namespace skiff::http {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // What is known of a connection when it is accepted.
  struct Origin {
    std::string client;  // the peer's address, for the log
    size_t door = 0;     // see HttpRequest
  };
  HttpConnection(std::shared_ptr<HttpCore> core, StreamSocket socket, Origin origin,
                 ConnectionKind kind);
  ~HttpConnection();

  void start();
  void close();          // may be called from any thread
  void refuse_upload();  // any thread: answers 503 to an unfinished upload
  void wake();           // any thread: sends the bytes that the exchange has

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
  bool name_request();
  void dispatch();
  void set_open(bool open);
  void fail(const HttpRefusal& refusal);
  void fail(int status, const std::string& why);
  void fail(HttpResponse response);
  void on_written(boost::system::error_code error);
  void reply_done();
  void record(const HttpExchange& exchange, bool complete);
  void broken(const char* why) noexcept;
  void linger();
  void discard();
  void shut();
  void arm(double seconds);
  void check_reply();
  void on_deadline();

  const std::shared_ptr<HttpCore> core_;
  HttpStream stream_;
  const Origin origin_;
  const ConnectionKind kind_;
  Deadline deadline_;
  std::vector<char> fresh_;  // target of a read under way; what reader_ has is consumed meanwhile
                             // when requests are pipelined
  RequestReader reader_;
  std::string out_;    // bytes that are being written
  HttpRecord record_;  // the log entry of the request
  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<HttpConnection> self_;  // set while busy, when no read may keep this alive
  State state_ = State::kIdle;
  bool reading_ = false, writing_ = false, complete_ = false;
  bool left_ = false;  // the stream of the client has ended or failed
  bool open_ = false;  // counted in core_->open_requests
  size_t discarded_ = 0;
  Clock::time_point head_began_;
  Clock::time_point progress_;  // when bytes of the write under way were last taken
};

}  // namespace skiff::http
