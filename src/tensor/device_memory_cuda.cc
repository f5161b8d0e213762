#include <cuda_runtime.h>

#include <cstdlib>

#include "base/load_error.h"
#include "base/round_up.h"
#include "tensor/device_memory.h"

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
  void* data = nullptr;
  return null_if_full(cudaMalloc(&data, bytes), data, "allocating device memory");
}

void free_on_device(std::byte* data) { cudaFree(data); }

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
