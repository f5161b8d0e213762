// serve/http/body_count.h -- how much memory the bodies of all requests use together. Private to
// the HTTP server.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace skiff::http {

// Adds the size of one body to the sum for as long as this lives. It moves with the body from the
// connection to the request, so that a body counts until it is freed, even if the client has left.
class BodyCount {
 public:
  using Sum = std::atomic<int64_t>;

  explicit BodyCount(std::shared_ptr<Sum> sum) : sum_(std::move(sum)) {}
  ~BodyCount() { *sum_ -= bytes_; }
  BodyCount(const BodyCount&) = delete;
  BodyCount& operator=(const BodyCount&) = delete;

  // Sets the size of this body to `bytes`. Returns the sum of all bodies.
  int64_t set(size_t bytes) {
    const auto now = static_cast<int64_t>(bytes);
    const int64_t more = now - std::exchange(bytes_, now);
    return *sum_ += more;
  }

 private:
  const std::shared_ptr<Sum> sum_;
  int64_t bytes_ = 0;
};

}  // namespace skiff::http
