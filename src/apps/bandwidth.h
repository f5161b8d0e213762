// apps/bandwidth.h -- measures how fast this machine reads memory, which bounds a decode step.
#pragma once
#include "tensor/tensor.h"

namespace skiff::apps {

// Returns the bytes per second that `threads` (0: one per core) read together from a buffer far
// larger than the caches, as the best of several passes. Takes about a second.
double measured_read_bandwidth(int threads);

// Returns the copy bandwidth of a CUDA device: bytes read plus bytes written, per second.
double measured_copy_bandwidth(Device device);

}  // namespace skiff::apps
