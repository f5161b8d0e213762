// tensor/device_memory.h -- memory on a CUDA device, and host memory that the device can reach.
// device_memory_cuda.cc implements it where CUDA is built, device_memory.cc elsewhere. Thread-safe.
#pragma once
#include <cstddef>

#include "base/load_error.h"
#include "tensor/tensor.h"

namespace skiff {

// A device has no room for an allocation; what() says how much it has, where that can be known.
struct OutOfDeviceMemory : LoadError {
  using LoadError::LoadError;
};

struct DeviceMemory {
  size_t free = 0, total = 0;  // bytes; `free` counts for all processes
};

int num_cuda_devices();  // 0 where there is no CUDA, no driver or no device
DeviceMemory device_memory(Device device);

// Null where there is no room. Other trouble throws LoadError.
std::byte* allocate_on_device(Device device, size_t bytes);
void free_on_device(std::byte* data);

// Page-locked, so that copies to and from a device overlap with its work; plain memory where there
// is no CUDA. Null where there is no room.
std::byte* allocate_pinned(size_t bytes);
void free_pinned(std::byte* data);

}  // namespace skiff
