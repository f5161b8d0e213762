#include "route/answer.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "route/forward.h"
#include "serve/http/broken_stream.h"

namespace skiff::route {
namespace {

// Bodies of up to this many bytes are sent whole, with their length.
constexpr int64_t kShort = 64 << 10;
// Bytes that may be on their way to a client before it is asked whether it takes them.
constexpr size_t kMaxUnconfirmed = 256 << 10;

}  // namespace

void Answer::begin(const ResponseHead& head, int64_t left) {
  began_ = true;
  response_ = returned_head(head);
  const bool none = head.status == 204 || head.status == 304;
  streaming_ = !none && (left < 0 || left > kShort);
  if (streaming_) reply_->begin_stream(response_);
}

void Answer::add(std::string part, const std::function<void()>& pause,
                 std::function<void()> resume) {
  if (!streaming_) {
    response_.body += part;
    return;
  }
  unconfirmed_ += part.size();
  if (!reply_->write(std::move(part)) || unconfirmed_ < kMaxUnconfirmed) return;
  pause();
  unconfirmed_ = 0;
  reply_->when_sent([&io = core_.io, resume = std::move(resume)] { net::post(io, resume); });
}

void Answer::end() {
  count(response_.status);
  const auto reply = std::exchange(reply_, nullptr);
  if (streaming_)
    reply->end_stream();
  else
    reply->send(std::move(response_));
}

void Answer::break_off(const std::string& why) {
  if (!streaming_) return refuse(502, why);
  ++core_.metrics.broken;
  count(response_.status);
  const auto reply = std::exchange(reply_, nullptr);
  const std::string event = http::last_event(path_, response_.content_type, why);
  if (event.empty()) return;
  reply->write(event);
  reply->end_stream();
}

void Answer::refuse(int status, const std::string& why) {
  count(status);
  std::exchange(reply_, nullptr)->send(refusal(status, why));
}

void Answer::drop() {
  count(0);
  reply_.reset();
}

}  // namespace skiff::route
