// apps/bandwidth.h -- how fast this machine reads memory, measured: the limit of a decode step.
#pragma once

namespace skiff {

// Bytes per second that `threads` (0: one per core) read together from a buffer far larger than
// the caches; the best of some passes. Takes about a second.
double measured_read_bandwidth(int threads);

}  // namespace skiff
