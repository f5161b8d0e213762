// ops/cuda/device_facts.h -- what the driver reports about a device.
#pragma once
#include "ops/cuda/device_fit.h"

namespace skiff::cuda {

// Makes the device the current one.
DeviceFacts facts_of(int device);
// runs_hopper_kernels() of the current device.
bool current_runs_hopper_kernels();
// The architectures that the kernels were compiled for, as CMake names them.
const char* built_architectures();

}  // namespace skiff::cuda
