// ops/cuda/attention/args_of.h -- from tensors to the kernels' arguments.
#pragma once
#include "arch/spec.h"
#include "ops/batch.h"
#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

Rows rows_of(const RaggedBatch& batch);
CacheArgs cache_of(const KvLayer& kv);  // CHECKs the dtypes

constexpr int kMaxHeadDim = 256;

// Returns whether activations are bf16; CHECKs that they are that or f32, and that head_dim is one
// that the kernels take.
bool is_bf16(const Tensor& activations);
void check_head_dim(const Gqa& spec);

}  // namespace skiff::cuda
