#include <fmt/format.h>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>

#include <utility>

#include "serve/http_connection.h"

namespace skiff {

HttpExchange::HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection,
                           bool head, bool chunked, bool keep_alive, std::string request_id,
                           HttpHeaders extra)
    : core_(std::move(core)),
      connection_(std::move(connection)),
      head_(head),
      chunked_(chunked),
      keep_alive_(keep_alive),
      request_id_(std::move(request_id)),
      extra_(std::move(extra)) {}

void HttpExchange::send(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (began_ || closed_) return;
    began_ = ended_ = true;
    const bool no_body = response.status == 204 || response.status == 304;
    append_head(response,
                no_body ? "" : fmt::format("Content-Length: {}\r\n", response.body.size()));
    if (!head_ && !no_body) unsent_ += response.body;
  }
  wake();
}

void HttpExchange::begin_stream(HttpResponse head) {
  {
    std::lock_guard lock(mutex_);
    if (began_ || closed_) return;
    began_ = true;
    if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection ends the body
    append_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
    append_part(head.body);
  }
  wake();
}

bool HttpExchange::write(std::string part) {
  bool overflow = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !began_ || ended_) return false;
    overflow = unsent_.size() + part.size() > core_->config.max_unsent;
    if (!overflow) append_part(part);
  }
  if (!overflow) {
    wake();
    return true;
  }
  if (auto connection = connection_.lock()) connection->close();
  return false;
}

void HttpExchange::end_stream() {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !began_ || ended_) return;
    ended_ = true;
    if (chunked_ && !head_) unsent_ += "0\r\n\r\n";
  }
  wake();
}

void HttpExchange::on_close(std::function<void()> closed) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      on_close_ = std::move(closed);
      return;
    }
  }
  closed();
}

void HttpExchange::abandon() {
  bool began, ended;
  {
    std::lock_guard lock(mutex_);
    began = began_;
    ended = ended_ || closed_;
  }
  if (ended) return;
  if (!began) return send(core_->hooks.failure(500, "the request was not answered"));
  if (auto connection = connection_.lock()) connection->close();
}

// Several parts appended before the connection wakes leave in one write.
void HttpExchange::wake() {
  auto connection = connection_.lock();
  if (!connection) return;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(woken_, true)) return;
  }
  net::post(connection->executor(), [connection] { connection->flush(); });
}

std::string HttpExchange::take(bool* complete) {
  std::lock_guard lock(mutex_);
  woken_ = false;
  *complete = ended_;
  return std::exchange(unsent_, {});
}

void HttpExchange::close(bool complete) {
  std::function<void()> closed;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    unsent_.clear();
    closed = std::exchange(on_close_, nullptr);
  }
  if (!complete && closed) closed();
}

void HttpExchange::append_head(const HttpResponse& response, const std::string& framing) {
  if (core_->draining) keep_alive_ = false;
  status_ = response.status;
  const auto reason =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(response.status));
  unsent_ += fmt::format("HTTP/1.1 {} {}\r\n", response.status, std::string(reason));
  if (!response.content_type.empty())
    unsent_ += fmt::format("Content-Type: {}\r\n", response.content_type);
  unsent_ += framing;
  unsent_ += fmt::format("x-request-id: {}\r\n", request_id_);
  for (const HttpHeaders* headers : {&response.headers, &extra_})
    for (const auto& [name, value] : *headers) unsent_ += name + ": " + value + "\r\n";
  unsent_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpExchange::append_part(const std::string& part) {
  if (part.empty() || head_) return;
  if (!chunked_) {
    unsent_ += part;
    return;
  }
  unsent_ += fmt::format("{:x}\r\n", part.size());
  unsent_ += part;
  unsent_ += "\r\n";
}

}  // namespace skiff
