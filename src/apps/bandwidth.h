// apps/bandwidth.h -- how fast this machine reads memory, measured: the limit of a decode step.
#pragma once
#include "tensor/tensor.h"

namespace skiff {

// Bytes per second that `threads` (0: one per core) read together from a buffer far larger than
// the caches; the best of some passes. Takes about a second.
double measured_read_bandwidth(int threads);

// The same of a CUDA device, by its own copies: bytes read plus bytes written.
double measured_copy_bandwidth(Device device);

}  // namespace skiff
