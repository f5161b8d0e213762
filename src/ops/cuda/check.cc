#include "ops/cuda/check.h"

#include <fmt/format.h>

#include "tensor/device_memory.h"

namespace skiff::cuda {

namespace {

// Without a context the device's memory cannot be queried; then the context itself did not fit.
[[noreturn]] void fail_memory(const char* doing) {
  size_t free = 0, total = 0;
  int device = 0;
  cudaGetLastError();  // else the next call would report it again
  if (cudaGetDevice(&device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
    throw OutOfDeviceMemory(
        fmt::format("CUDA device {} ran out of memory while {}: {} of {} bytes are free", device,
                    doing, free, total));
  cudaGetLastError();
  throw OutOfDeviceMemory(
      fmt::format("the CUDA device is out of memory: not even a context fits, while {}", doing));
}

}  // namespace

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) fail_memory(doing);
  throw DeviceError(fmt::format("CUDA error while {}: {} ({})", doing, cudaGetErrorName(error),
                                cudaGetErrorString(error)));
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "asking which device is current");
  check(cudaDeviceGetAttribute(&value, which, device), "asking for a device attribute");
  return value;
}

}  // namespace skiff::cuda
