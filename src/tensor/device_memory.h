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

// Null where there is no room. Other trouble throws LoadError. `device` and `bytes` are the same in
// all calls for the same memory.
std::byte* allocate_on_device(Device device, size_t bytes);
void free_on_device(Device device, std::byte* data, size_t bytes);

// Whether allocations of so many bytes can leave the device and come back to their addresses.
bool can_leave_device(Device device, size_t bytes);
// What follows is for memory that can, while no kernel uses it.
// Lets the system have the memory, which may be gone already; its contents are lost and its
// addresses stay. Returns the bytes that belong to the addresses.
size_t leave_device(Device device, std::byte* data, size_t bytes);
// Takes memory that is gone again. Returns false, and changes nothing, where there is no room.
bool return_to_device(Device device, std::byte* data, size_t bytes);
// Moves the memory at `from`, contents included, to `to`, whose own leaves if it is there. What was
// at `from` is gone.
void move_on_device(Device device, std::byte* to, std::byte* from, size_t bytes);

// Page-locked, so that copies to and from a device overlap with its work; plain memory where there
// is no CUDA. Null where there is no room.
std::byte* allocate_pinned(size_t bytes);
void free_pinned(std::byte* data);

}  // namespace skiff
