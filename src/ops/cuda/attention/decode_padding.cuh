// ops/cuda/attention/decode_padding.cuh -- the rows of a step that belong to no sequence.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/attention/attend_kernels.h"

namespace skiff::cuda::decode {

// Writes zeros to the padding rows of `out`.
template <class S>
__device__ void clear_padding(const DecodeArgs& d) {
  const int cols = S::kDim * d.args.group * d.args.cache.kv_heads;
  auto* out = static_cast<__nv_bfloat16*>(d.args.out);
  for (int row = d.plan.head->rows_end + static_cast<int>(blockIdx.x); row < d.args.rows.num_tokens;
       row += static_cast<int>(gridDim.x)) {
    for (int c = static_cast<int>(threadIdx.x) * 8; c < cols; c += S::kComputing * 8) {
      *reinterpret_cast<uint4*>(out + row * d.args.out_stride + c) = uint4{};
    }
  }
}

}  // namespace skiff::cuda::decode
