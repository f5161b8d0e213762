#include "ops/cuda/attention/attend.h"

#include <cmath>

#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/attention/attend_kernels.h"

namespace skiff::cuda {
namespace {

AttendArgs args_of(const Tensor& out, const Tensor& q, const Gqa& spec, const RaggedBatch& batch,
                   const KvLayer& kv) {
  SKIFF_CHECK_EQ(q.cols(), static_cast<int64_t>(spec.heads) * spec.head_dim);
  SKIFF_CHECK_EQ(out.cols(), q.cols());
  SKIFF_CHECK(out.dtype == q.dtype);
  check_head_dim(spec);
  return {.rows = rows_of(batch),
          .cache = cache_of(kv),
          .out = out.data,
          .q = q.data,
          .out_stride = out.row_stride,
          .q_stride = q.row_stride,
          .bf16 = is_bf16(q),
          .group = spec.heads / spec.kv_heads,
          .head_dim = spec.head_dim,
          .window = spec.window,
          .scale = 1 / std::sqrt(static_cast<float>(spec.head_dim))};
}

}  // namespace

void gqa_attend_generic(const Tensor& out, const Tensor& q, const Gqa& spec,
                        const RaggedBatch& batch, const KvLayer& kv, cudaStream_t stream) {
  if (batch.num_tokens > 0) start_generic(args_of(out, q, spec, batch, kv), stream);
}

}  // namespace skiff::cuda
