// ops/cuda/device_facts.h -- what the driver says of a device.
#pragma once
#include "ops/cuda/device_fit.h"

namespace skiff::cuda {

DeviceFacts facts_of(int device);  // makes it the current one
// The same as runs_hopper_kernels() of the current device.
bool current_runs_hopper_kernels();
// The architectures that the kernels were compiled for, as CMake names them.
const char* built_architectures();

}  // namespace skiff::cuda
