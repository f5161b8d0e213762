#include "ops/cuda/attention/store.h"

#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/attention/store_kernel.h"

namespace skiff::cuda {

void gqa_store(const Tensor& qkv, const Biased& biased, const Norm& q, const Norm& k,
               const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv, const float* speeds,
               cudaStream_t stream) {
  SKIFF_CHECK_EQ(qkv.cols(), static_cast<int64_t>(spec.heads + 2 * spec.kv_heads) * spec.head_dim);
  check_head_dim(spec);
  if (batch.num_tokens == 0) return;
  start_store({.rows = rows_of(batch),
               .cache = cache_of(kv),
               .qkv = qkv.data,
               .stride = qkv.row_stride,
               .bf16 = is_bf16(qkv),
               .sums = biased.sums ? biased.sums.as<float>() : nullptr,
               .bias = biased.sums ? biased.bias.as<float>() : nullptr,
               .sums_stride = biased.sums.row_stride,
               .speeds = speeds,
               .q_norm = q.weight ? q.weight.as<float>() : nullptr,
               .k_norm = k.weight ? k.weight.as<float>() : nullptr,
               .q_eps = q.eps,
               .k_eps = k.eps,
               .gain = rope_gain(spec.rope),
               .heads = spec.heads,
               .kv_heads = spec.kv_heads,
               .head_dim = spec.head_dim,
               .rope_dim = spec.rope.dim,
               .interleaved = spec.rope.interleaved},
              stream);
}

}  // namespace skiff::cuda
