// text/jinja/budget.h -- the limits of one rendering, and the exception that ends it.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace skiff::jinja {

struct Limits {
  uint64_t steps = 10'000'000;    // nodes evaluated, items visited, 64-byte pieces of text read
  uint64_t bytes = 256ull << 20;  // total of all texts and lists made, alive or not
  uint64_t value = 64ull << 20;   // limit for one text or list
  size_t output = 64ull << 20;    // bytes of the rendered text
  int depth = 150;                // nesting depth of values
  // Limit on real time from the start of the rendering. Steps differ in cost, so this limit is what
  // bounds the time of a worker.
  std::chrono::nanoseconds time = std::chrono::seconds(1);
};

// Thrown and caught inside the room only: parsing and rendering end in a Result.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), deadline_(Clock::now() + std::min(limits.time, kLongest)) {}

  void step(uint64_t n = 1) {
    steps_ = n > UINT64_MAX - steps_ ? UINT64_MAX : steps_ + n;
    if (steps_ >= next_look_) look();
  }
  // Must be called before the memory is allocated.
  void make(uint64_t n) {
    if (n > limits_.value) fail("the template makes a value of more than {} bytes", limits_.value);
    step(1 + n / 64);
    bytes_ += n;
    if (bytes_ > limits_.bytes)
      fail("the template makes more than {} bytes of values", limits_.bytes);
  }
  void make_many(uint64_t count, uint64_t size) {
    make(size && count > limits_.bytes / size ? UINT64_MAX : count * size);
  }
  const Limits& limits() const { return limits_; }
  uint64_t steps() const { return steps_; }
  uint64_t bytes() const { return bytes_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24);
  // Steps between two readings of the clock. A charge of more steps reads it at once.
  static constexpr uint64_t kBetweenLooks = 1024;

  void look() {
    if (steps_ > limits_.steps) fail("the template takes more than {} steps", limits_.steps);
    if (Clock::now() > deadline_)
      fail("the template takes more than {} ms",
           std::chrono::duration_cast<std::chrono::milliseconds>(limits_.time).count());
    next_look_ = std::min(steps_ + kBetweenLooks, limits_.steps + 1);
  }

  Limits limits_;
  Clock::time_point deadline_;
  uint64_t steps_ = 0, bytes_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace skiff::jinja
