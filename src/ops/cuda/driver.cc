#include "ops/cuda/driver.h"

#include <cuda_runtime.h>

#include "ops/cuda/check.h"

namespace skiff::cuda {

void* driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  check(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found),
        "looking up a function of the driver");
  if (found != cudaDriverEntryPointSuccess)
    throw DeviceError(std::string("the CUDA driver has no ") + name + "; update it to " +
                      std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                      " or later");
  return function;
}

}  // namespace skiff::cuda
