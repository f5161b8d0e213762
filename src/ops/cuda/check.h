// ops/cuda/check.h -- what becomes of CUDA's error codes.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace skiff::cuda {

// The device or its context is lost, or we misuse it: nothing on it can be trusted any more.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws DeviceError with CUDA's name and text of the error and what was being done; where the
// device is out of memory, OutOfDeviceMemory (tensor/device_memory.h).
void check(cudaError_t error, const char* doing);

}  // namespace skiff::cuda
