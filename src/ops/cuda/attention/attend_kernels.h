// ops/cuda/attention/attend_kernels.h -- the launches behind Attention.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

struct AttendArgs {
  Rows rows;
  CacheArgs cache;
  void* out;
  const void* q;
  int64_t out_stride, q_stride;  // elements
  bool bf16;                     // out and q
  int group, head_dim, window;   // group: query heads per kv head
  float scale;                   // of scores
};

// Any mixture of f32 and bf16, any head_dim that is a multiple of 8 up to 256, any page size and
// window; f32 throughout. A row's result depends on its position, its query and its context only,
// bit for bit. Padding rows get zeros.
void start_generic(const AttendArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
