// serve/http/request_reader.h -- one request after the other out of the bytes of a connection:
// head, then body, within the limits of the server. Knows no socket. Private to the HTTP server.
#pragma once
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "serve/http/body.h"
#include "serve/http/body_count.h"
#include "serve/http/head.h"
#include "serve/http/server.h"

namespace skiff::http {

// For one request: begin(), take_head() until it is complete, begin_body(), take_body() until it is
// complete, finish(). Bytes behind a request stay for the next one.
class RequestReader {
 public:
  enum class Took {
    kMore,  // more bytes are needed
    kAll,
    kRefused,  // see refusal()
  };

  // `config` outlives the reader. `body_bytes` counts the memory of all bodies.
  RequestReader(const HttpConfig& config, std::shared_ptr<BodyCount::Sum> body_bytes)
      : config_(config), body_bytes_(std::move(body_bytes)) {}

  void append(boost::asio::const_buffer bytes);
  size_t ahead() const { return in_.size(); }  // bytes that were read and not consumed
  void drop_ahead() { in_.consume(in_.size()); }

  void begin();
  // Once it has not returned kMore, request() and target() are what is known of the head.
  Took take_head();
  // Judges the fields of the head: kMore if a body follows, kAll if none does.
  Took begin_body();
  // Whether the client waits for "100 Continue" before it sends the body.
  bool awaits_continue() const;
  Took take_body();
  void drop_body();
  // Puts the body into request(), with the count of its memory.
  void finish();

  // Seconds until the deadline that the minimum body rate implies for the bytes received so far.
  double body_allowance() const;

  HttpRequest& request() { return request_; }
  const HttpRequest& request() const { return request_; }
  const std::string& target() const { return head_->target(); }
  int minor() const { return head_->minor(); }  // x of HTTP/1.x: 0 or 1
  const HttpRefusal& refusal() const { return refusal_; }

 private:
  using Clock = std::chrono::steady_clock;

  Took refuse(HttpRefusal refusal);
  size_t body_limit() const;
  bool count_body();

  const HttpConfig& config_;
  const std::shared_ptr<BodyCount::Sum> body_bytes_;
  boost::beast::flat_buffer in_;
  std::optional<HeadReader> head_;
  std::optional<BodyReader> body_;
  std::shared_ptr<BodyCount> counted_;  // counts body_ in *body_bytes_
  HttpRequest request_;                 // complete but for its body once the head has been read
  HttpRefusal refusal_;
  Clock::time_point body_began_;
};

}  // namespace skiff::http
