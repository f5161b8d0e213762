// bench/ops/machine_limits.h -- measures the limits of this machine.
#pragma once
#include <functional>

namespace skiff::bench {

struct Limits {
  double read_bytes = 0;  // bytes per second from memory, all threads
  double f32_flops = 0;   // fused multiply-adds count two
  double bf16_flops = 0;  // the f32 rate if no instruction multiplies bf16 faster
  double int8_ops = 0;    // the rate of VPDPBUSD, or of f32 where there is none
};
Limits measure_limits(int threads);

// Returns the time, in seconds, on the clock for a run of this many threads: wall time, or a single
// thread's processor time.
double now(int threads);

// Returns the seconds of the best of as many runs as fit into half a second, at least five: like
// the limits, the time of an undisturbed machine.
double best_time(int threads, const std::function<void()>& run);

}  // namespace skiff::bench
