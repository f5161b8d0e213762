#include "ops/cuda/check.h"

#include <fmt/format.h>

namespace skiff::cuda {

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  throw DeviceError(fmt::format("CUDA error while {}: {} ({})", doing, cudaGetErrorName(error),
                                cudaGetErrorString(error)));
}

}  // namespace skiff::cuda
