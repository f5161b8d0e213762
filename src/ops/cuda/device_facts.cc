#include "ops/cuda/device_facts.h"

#include "ops/cuda/check.h"
#include "ops/cuda/rows/kernels.h"

namespace skiff::cuda {

DeviceFacts facts_of(int device) {
  check(cudaSetDevice(device), "choosing a device");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking what a device is");
  return {.index = device,
          .name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .max_block_shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
          .has_kernels = has_kernels(),
          .mps = attribute(cudaDevAttrMpsEnabled) != 0};
}

bool current_runs_hopper_kernels() {
  int device = 0;
  check(cudaGetDevice(&device), "asking which device is current");
  return runs_hopper_kernels(facts_of(device));
}

const char* built_architectures() { return SKIFF_CUDA_ARCHITECTURES; }

}  // namespace skiff::cuda
