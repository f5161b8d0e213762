// ops/cuda/attention/store_kernel.h -- the launch behind gqa_store.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

struct StoreArgs {
  Rows rows;
  CacheArgs cache;
  void* qkv;
  int64_t stride;                         // elements
  bool bf16;                              // activations
  const float *sums, *bias;               // or null; else qkv is their sum, rounded
  int64_t sums_stride;                    // elements
  const float *speeds, *q_norm, *k_norm;  // the norms may be null
  float q_eps, k_eps;
  float gain;  // cosines and sines are multiplied by it
  int heads, kv_heads, head_dim, rope_dim;
  bool interleaved;
};
void start_store(const StoreArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
