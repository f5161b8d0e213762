// Multi-head latent attention: what surrounds attention itself.
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/paging.h"
#include "ops/cpu/rotate.h"
#include "ops/cpu/rows.h"
#include "ops/latent_row.h"

namespace skiff::cpu {

// Pieces of kHeadTokens tokens bound the operand, which has a row for each head of each token.
void CpuOps::heads_linear(Tensor out, Tensor x, const Linear& w) {
  check_prepared(w);
  const PanelShape shape = PanelShape::of(w);
  const int64_t heads = shape.experts;
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.rows() % heads, 0);
  SKIFF_CHECK_EQ(out.cols(), shape.out);
  SKIFF_CHECK_EQ(x.cols(), shape.in);
  const auto width = static_cast<int64_t>(bytes(out.dtype));
  for (int64_t begin = 0; begin < x.rows(); begin += kHeadTokens * heads) {
    const int64_t tokens = std::min(kHeadTokens, (x.rows() - begin) / heads);
    std::vector<Group> groups;
    for (int64_t h = 0; h < heads; ++h) groups.push_back({h * tokens, tokens, h});
    const std::function<int64_t(int64_t)> row_of = [&](int64_t i) {
      return begin + i % tokens * heads + i / tokens;
    };
    product(groups, operand(x, x.dtype, groups, w, &row_of), w,
            [&](int64_t i, int64_t col, float* values, int64_t n) {
              copy_row(kernels_, row_data(out, row_of(i)) + col * width, out.dtype, values,
                       DType::kF32, n);
            });
  }
}

void CpuOps::mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec,
                       const RaggedBatch& batch, const KvLayer& cache) {
  const int64_t cached = spec.cached_dim(), rank = spec.kv_rank, rope = spec.rope_dim;
  SKIFF_CHECK_EQ(q.cols(), int64_t{spec.heads} * spec.q_dim());
  SKIFF_CHECK_EQ(kv.cols(), cached);
  const float* turns = rope_values(spec.rope, batch);
  const std::vector<int32_t> sequences = sequence_of_rows(batch);
  parallel_rows(
      std::ssize(sequences), q.cols() + cached, [&](int64_t begin, int64_t end, int thread) {
        float* scratch = thread_scratch_[static_cast<size_t>(thread)].take<float>(cached);
        for (int64_t r = begin; r < end; ++r) {
          const float *cos = turns + r * rope, *sin = cos + rope / 2;
          std::byte* head = row_data(q, r) + byte_size(q.dtype, spec.nope_dim);
          for (int h = 0; h < spec.heads; ++h, head += byte_size(q.dtype, spec.q_dim())) {
            copy_row(kernels_, scratch, DType::kF32, head, q.dtype, rope);
            rotate(scratch, cos, sin, spec.rope);
            copy_row(kernels_, head, q.dtype, scratch, DType::kF32, rope);
          }
          const float* from = kv.row<float>(r);
          const float mean = kernels_.sum_squares(from, rank) / static_cast<float>(rank);
          kernels_.scale(scratch, from, 1 / std::sqrt(mean + norm.eps), norm.weight.as<float>(),
                         rank);
          std::copy_n(from + rank, rope, scratch + rank);
          rotate(scratch + rank, cos, sin, spec.rope);
          const int32_t position = batch.positions.as<int32_t>()[r];
          const int64_t at = cache_row(batch, cache, sequences[static_cast<size_t>(r)], position);
          std::byte* to = cache_data(cache.k, at);
          if (cache.format.quantized())
            quantize_latent({spec.kv_rank, spec.rope_dim}, {scratch, static_cast<size_t>(cached)},
                            to);
          else
            copy_row(kernels_, to, cache.k.dtype, scratch, DType::kF32, cached);
        }
      });
}

}  // namespace skiff::cpu
