// ops/cuda/check.h -- CUDA error codes as exceptions.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace skiff::cuda {

// The device or its context is lost, or was misused: nothing on it can be trusted any more.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws DeviceError with CUDA's name and text of the error and with what was being done, or
// OutOfDeviceMemory (tensor/device_memory.h) where the device is out of memory.
void check(cudaError_t error, const char* doing);

// Returns an attribute of the current device.
int attribute(cudaDeviceAttr which);

}  // namespace skiff::cuda
