#include <cuda_runtime.h>

#include <array>
#include <cstdlib>

#include "base/load_error.h"
#include "base/round_up.h"
#include "tensor/device_memory.h"
#include "tensor/virtual_memory.h"

namespace skiff {
namespace {

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  fail_load("CUDA error while {}: {} ({})", doing, cudaGetErrorName(error),
            cudaGetErrorString(error));
}

// Running out of memory is a valid answer, so it is cleared from the runtime's last error.
std::byte* null_if_full(cudaError_t error, void*& data, const char* doing) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(error, doing);
  return static_cast<std::byte*>(data);
}

// Large memory has addresses of its own; small memory would be rounded up to a unit of 2 MiB.
// Returns the size of the former, else 0.
size_t virtual_size(Device device, size_t bytes) {
  const size_t unit = virtual_unit(device.index);
  return unit == 0 || bytes < unit ? 0 : round_up(bytes, unit);
}

bool map_on(Device device, std::byte* data, size_t size) {
  const std::array readers = {int{device.index}};
  return map_memory(data, size, device.index, readers);
}

// Unlike cudaFree(), an unmapping does not wait for kernels. The thread goes on with its device.
void finish_kernels(Device device) {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device.index);
  cudaDeviceSynchronize();
  cudaSetDevice(before);
}

}  // namespace

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

DeviceMemory device_memory(Device device) {
  check(cudaSetDevice(device.index), "choosing a device");
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free, &memory.total), "asking for free memory");
  return memory;
}

std::byte* allocate_on_device(Device device, size_t bytes) {
  check(cudaSetDevice(device.index), "choosing a device");
  if (const size_t size = virtual_size(device, bytes)) {
    std::byte* const at = reserve_addresses(size);
    if (map_on(device, at, size)) return at;
    release_addresses(at, size);
    return nullptr;
  }
  void* data = nullptr;
  return null_if_full(cudaMalloc(&data, bytes), data, "allocating device memory");
}

void free_on_device(Device device, std::byte* data, size_t bytes) {
  const size_t size = virtual_size(device, bytes);
  if (size == 0) {
    cudaFree(data);
    return;
  }
  finish_kernels(device);
  unmap_memory(data, size);
  release_addresses(data, size);
}

bool can_leave_device(Device device, size_t bytes) {
  if (device.index >= num_cuda_devices()) return false;
  check(cudaSetDevice(device.index), "choosing a device");
  return virtual_size(device, bytes) > 0;
}

size_t leave_device(Device device, std::byte* data, size_t bytes) {
  finish_kernels(device);
  const size_t size = virtual_size(device, bytes);
  unmap_memory(data, size);
  return size;
}

bool return_to_device(Device device, std::byte* data, size_t bytes) {
  return map_on(device, data, virtual_size(device, bytes));
}

void move_on_device(Device device, std::byte* to, std::byte* from, size_t bytes) {
  finish_kernels(device);
  remap_memory(to, from, virtual_size(device, bytes), device.index);
}

// Without a device nothing reads page-locked memory, and CUDA would refuse to allocate it.
std::byte* allocate_pinned(size_t bytes) {
  if (num_cuda_devices() == 0) {
    constexpr size_t kPage = 4096;
    return static_cast<std::byte*>(std::aligned_alloc(kPage, round_up(bytes, kPage)));
  }
  void* data = nullptr;
  return null_if_full(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), data,
                      "allocating page-locked memory");
}

void free_pinned(std::byte* data) {
  if (num_cuda_devices() == 0)
    std::free(data);
  else
    cudaFreeHost(data);
}

}  // namespace skiff
