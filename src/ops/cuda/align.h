// ops/cuda/align.h -- whether memory can be read and written in vectors.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace skiff::cuda {

// Returns whether `data`, and every address a multiple of `stride_bytes` behind it, is a multiple
// of `to`.
inline bool is_aligned(const void* data, int64_t stride_bytes = 0, int64_t to = 16) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(to) == 0 &&
         stride_bytes % to == 0;
}
// Returns whether every row does.
inline bool is_aligned(const Tensor& t, int64_t to = 16) {
  return is_aligned(t.data, t.row_stride * static_cast<int64_t>(bytes(t.dtype)), to);
}

}  // namespace skiff::cuda
