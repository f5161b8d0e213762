#include "serve/http/exchange.h"

#include <fmt/format.h>
#include <boost/beast/http/status.hpp>

#include <utility>

#include "serve/http/connection.h"

namespace skiff::http {

HttpExchange::HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection,
                           ReplyFraming framing)
    : core_(std::move(core)),
      connection_(std::move(connection)),
      framing_(std::move(framing)),
      keep_alive_(framing_.keep_alive) {}

// Counts the reply until it has been sent: a client may be slow, or never read at all. False if
// there is no room for it.
bool HttpExchange::hold(const HttpResponse& response) {
  const auto ticket =
      core_->held.hold(static_cast<int64_t>(response.body.size()), [connection = connection_] {
        if (auto open = connection.lock()) open->close();
      });
  if (ticket) held_ = *ticket;
  return ticket.has_value();
}

void HttpExchange::send(HttpResponse response) noexcept try {
  {
    std::lock_guard lock(mutex_);
    if (began_ || closed_) return;
  }
  if (!hold(response))
    response = core_->hooks.failure(
        503, fmt::format("the reply of {} bytes has no room: too many large replies wait for "
                         "their clients to read them; try again later",
                         response.body.size()));
  {
    std::lock_guard lock(mutex_);
    if (began_ || closed_) return core_->held.release(held_);
    began_ = ended_ = true;
    const bool no_body = response.status == 204 || response.status == 304;
    append_head(response,
                no_body ? "" : fmt::format("Content-Length: {}\r\n", response.body.size()));
    if (!framing_.head && !no_body) unsent_ += response.body;
  }
  wake();
} catch (...) {
  give_up();
}

void HttpExchange::begin_stream(const HttpResponse& head) noexcept try {
  {
    std::lock_guard lock(mutex_);
    if (began_ || closed_) return;
    began_ = true;
    if (!framing_.chunked) keep_alive_ = false;  // the end of the connection ends the body
    append_head(head, framing_.chunked ? "Transfer-Encoding: chunked\r\n" : "");
    append_part(head.body);
  }
  wake();
} catch (...) {
  give_up();
}

bool HttpExchange::write(const std::string& part) noexcept try {
  bool overflow = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !began_ || ended_ || given_up_) return false;
    overflow = unsent_.size() + part.size() > core_->config.max_unsent;
    if (!overflow) append_part(part);
  }
  if (!overflow) {
    wake();
    return true;
  }
  if (auto connection = connection_.lock()) connection->close();
  return false;
} catch (...) {
  give_up();
  return false;
}

void HttpExchange::end_stream() noexcept try {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !began_ || ended_) return;
    ended_ = true;
    if (framing_.chunked && !framing_.head) unsent_ += "0\r\n\r\n";
  }
  wake();
} catch (...) {
  give_up();
}

void HttpExchange::when_sent(std::function<void()> sent) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    on_sent_ = std::move(sent);
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

void HttpExchange::abandon() noexcept try {
  bool began, ended;
  {
    std::lock_guard lock(mutex_);
    began = began_;
    ended = ended_ || closed_;
  }
  if (ended) return;
  if (!began) return send(core_->hooks.failure(500, "the request was not answered"));
  if (auto connection = connection_.lock()) connection->close();
} catch (...) {
  give_up();
}

void HttpExchange::park(HttpRequest request) {
  std::lock_guard lock(mutex_);
  if (!closed_) parked_ = std::move(request);
}

std::optional<HttpRequest> HttpExchange::unpark() {
  std::lock_guard lock(mutex_);
  return std::exchange(parked_, std::nullopt);
}

// Parts that are appended before the connection wakes are sent in one write.
void HttpExchange::wake() {
  auto connection = connection_.lock();
  if (!connection) return;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(woken_, true)) return;
  }
  connection->wake();
}

std::string HttpExchange::take(bool* complete) {
  std::function<void()> sent;
  std::string taken;
  {
    std::lock_guard lock(mutex_);
    woken_ = false;
    *complete = ended_;
    taken = std::exchange(unsent_, {});
    if (taken.empty()) sent = std::exchange(on_sent_, nullptr);
  }
  if (sent) sent();
  return taken;
}

void HttpExchange::close(bool complete) {
  std::function<void()> closed, sent;
  std::optional<HttpRequest> parked;  // these three are freed without the mutex
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    unsent_ = {};
    closed = std::exchange(on_close_, nullptr);
    sent = std::exchange(on_sent_, nullptr);
    parked = std::exchange(parked_, std::nullopt);
  }
  core_->held.release(held_);
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
  unsent_ +=
      fmt::format("Date: {}\r\nx-request-id: {}\r\n", core_->clock.date(), framing_.request_id);
  for (const HttpHeaders* headers : {&response.headers, &framing_.extra})
    for (const auto& [name, value] : *headers)
      unsent_.append(name).append(": ").append(value).append("\r\n");
  unsent_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpExchange::append_part(const std::string& part) {
  if (part.empty() || framing_.head) return;
  if (!framing_.chunked) {
    unsent_ += part;
    return;
  }
  unsent_ += fmt::format("{:x}\r\n", part.size());
  unsent_ += part;
  unsent_ += "\r\n";
}

}  // namespace skiff::http
