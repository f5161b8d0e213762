// route/metrics.h -- what the router counts of its own work, as Prometheus reads it. On the
// router's thread.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "route/registry.h"

namespace skiff::route {

// Counts durations, in seconds, below fixed bounds.
class Histogram {
 public:
  static constexpr std::array kBounds{0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.0025, 0.005,
                                      0.01,   0.025,  0.05,   0.1,    0.25,  0.5,    1.0,
                                      2.5,    5.0,    10.0,   30.0,   60.0};
  void add(double seconds);
  // Appends the lines of a histogram.
  void write(std::string_view name, std::string_view help, std::string* out) const;

 private:
  std::array<uint64_t, kBounds.size()> counts_{};  // cumulative
  uint64_t count_ = 0;
  double sum_ = 0;
};

struct Metrics {
  std::map<int, uint64_t> answers;  // by status; 0: the client left first
  uint64_t retries = 0;
  uint64_t broken = 0;  // answers that broke off after they had begun
  uint64_t registrations = 0, refused_registrations = 0;
  int64_t cached_tokens = 0, prompt_tokens = 0;  // estimates: of prompts, and what was cached
  Histogram dispatch;    // seconds from the whole request to its first byte on the way to a backend
  Histogram first_byte;  // seconds from there to the head of the answer
  // Returns all metrics in Prometheus' text format; `open` is the number of open requests.
  std::string text(const Registry& registry, size_t open) const;
};

}  // namespace skiff::route
