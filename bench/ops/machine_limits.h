// bench/ops/machine_limits.h -- what this machine can do at most, measured.
#pragma once

namespace skiff::bench {

struct Limits {
  double read_bytes = 0;  // bytes per second from memory, all threads
  double f32_flops = 0;   // fused multiply-adds count two
  double bf16_flops = 0;  // the f32 rate where nothing multiplies bf16 faster
};
Limits measure_limits(int threads);

// Seconds on the clock that a run of so many threads is timed with: wall time, or for a single
// thread its processor time.
double now(int threads);

}  // namespace skiff::bench
