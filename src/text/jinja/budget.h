// text/jinja/budget.h -- what one rendering may spend, and how it gives up.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace skiff::jinja {

struct Limits {
  uint64_t steps = 10'000'000;    // nodes evaluated, items visited, 64-byte pieces of text read
  uint64_t bytes = 256ull << 20;  // of all texts and lists made, whether or not still alive
  uint64_t value = 64ull << 20;   // of one text or list
  size_t output = 64ull << 20;    // bytes of the whole text
  int depth = 150;                // of lists and dicts inside one another
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
  explicit Budget(const Limits& limits) : limits_(limits) {}
  void step(uint64_t n = 1) {
    if ((steps_ += n) > limits_.steps) fail("the template takes more than {} steps", limits_.steps);
  }
  // To be called before the memory is taken.
  void make(uint64_t n) {
    if (n > limits_.value) fail("the template makes a value of more than {} bytes", limits_.value);
    step(n / 64);
    if ((bytes_ += n) > limits_.bytes)
      fail("the template makes more than {} bytes of values", limits_.bytes);
  }
  void make_many(uint64_t count, uint64_t size) {
    make(size && count > limits_.bytes / size ? UINT64_MAX : count * size);
  }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  uint64_t steps_ = 0, bytes_ = 0;
};

}  // namespace skiff::jinja
