#include "ops/cuda/check.h"

#include <fmt/format.h>

namespace skiff::cuda {

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
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
