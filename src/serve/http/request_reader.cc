#include "serve/http/request_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/seconds.h"

namespace skiff::http {
namespace {

// Bytes of body that a request of a method without content may have.
constexpr size_t kMaxIdleBody = 4u << 10;

std::string_view view(const boost::beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

}  // namespace

void RequestReader::append(boost::asio::const_buffer bytes) {
  in_.commit(boost::asio::buffer_copy(in_.prepare(bytes.size()), bytes));
}

void RequestReader::begin() {
  head_.emplace(config_.max_header, config_.max_fields);
  request_ = {};
}

RequestReader::Took RequestReader::refuse(HttpRefusal refusal) {
  refusal_ = std::move(refusal);
  return Took::kRefused;
}

RequestReader::Took RequestReader::take_head() {
  const bool allowed = head_->look(view(in_));
  if (allowed && head_->size() == 0) return Took::kMore;
  request_ = std::move(head_->request());
  if (!allowed) return refuse(head_->refusal());
  in_.consume(head_->size());
  return Took::kAll;
}

RequestReader::Took RequestReader::begin_body() {
  body_began_ = Clock::now();
  if (auto refused = refuse_fields(request_, minor())) return refuse(std::move(*refused));
  body_.emplace(request_, body_limit());
  return body_->done() ? Took::kAll : Took::kMore;
}

bool RequestReader::awaits_continue() const {
  const bool asked = minor() == 1 && !request_.header("expect").empty();
  return asked && body_->refusal().status == 0;
}

// GET, HEAD and the like have no content by definition; some clients send a little all the same.
size_t RequestReader::body_limit() const {
  return has_content(request_.method) ? config_.max_body : std::min(config_.max_body, kMaxIdleBody);
}

RequestReader::Took RequestReader::take_body() {
  in_.consume(body_->take(view(in_)));
  if (body_->refusal().status != 0) return refuse(body_->refusal());
  if (!count_body())
    return refuse({503, "the server holds as many request bodies as it may; try again later"});
  return body_->done() ? Took::kAll : Took::kMore;
}

// Counts the memory of the body: its capacity, which exceeds its size while it grows. False if all
// bodies together exceed the limit.
bool RequestReader::count_body() {
  if (body_->body().empty()) return true;
  if (!counted_) counted_ = std::make_shared<BodyCount>(body_bytes_);
  return counted_->set(body_->body().capacity()) <= config_.max_bodies;
}

void RequestReader::drop_body() {
  body_.reset();
  counted_.reset();
}

void RequestReader::finish() {
  request_.body = std::move(body_->body());
  request_.counted = std::move(counted_);
}

double RequestReader::body_allowance() const {
  const double earned =
      config_.body_grace + static_cast<double>(body_->wire()) / std::max(config_.body_rate, 1e-3);
  return std::min(config_.body_seconds, earned) - seconds(Clock::now() - body_began_);
}

}  // namespace skiff::http
