// ops/cuda/rows/matrix.cuh -- rows of floats as kernels see them.
#pragma once
#include "ops/cuda/rows/kernels.h"

namespace skiff::cuda {

template <class T>
__device__ __forceinline__ T* row_of(const Matrix& m, int64_t row) {
  return static_cast<T*>(m.data) + row * m.stride;
}

}  // namespace skiff::cuda
