// ops/read_bandwidth.h -- how fast a CUDA device reads its memory, which bounds a decode step.
#pragma once
#include "tensor/tensor.h"

namespace skiff {

// Returns the bytes per second at which the device adds up all words of 4 GiB of its memory, or of
// 1 GiB where it has no room for that, as the best of several passes. The sum is checked. Throws
// LoadError where there is no such device, or CUDA is not built.
double device_read_bandwidth(Device device);

}  // namespace skiff
