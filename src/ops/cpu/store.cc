#include <algorithm>
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/paging.h"
#include "ops/cpu/rotate.h"
#include "ops/cpu/rows.h"
#include "ops/kv_quant.h"

namespace skiff::cpu {
namespace {

// Stores the keys and the values of a position, x [2 * kv_heads * head_dim].
void quantize_position(const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv, int seq,
                       int32_t position, const float* x) {
  const int32_t page = batch.pages.row<int32_t>(seq)[position / kv.page_size];
  const auto dim = static_cast<size_t>(spec.head_dim);
  for (int h = 0; h < 2 * spec.kv_heads; ++h, x += dim) {
    const bool key = h < spec.kv_heads;
    const KvHead to = kv_head(key ? kv.k : kv.v, key ? kv.k_scale : kv.v_scale, kv.format, page,
                              position % kv.page_size, key ? h : h - spec.kv_heads);
    skiff::quantize(kv.format, {x, dim}, to);
  }
}

}  // namespace

CpuOps::RopeTable& CpuOps::rope_table(const Rope& rope) {
  const auto found = std::ranges::find(rope_tables_, rope, &RopeTable::rope);
  if (found != rope_tables_.end()) return *found;
  return rope_tables_.emplace_back(RopeTable{.rope = rope, .values = {}});
}

const float* CpuOps::rope_values(const Rope& rope, const RaggedBatch& batch) {
  RopeTable& table = rope_table(rope);
  float* values = table.values.take<float>(static_cast<int64_t>(batch.num_tokens) * rope.dim);
  if (table.valid) return values;
  table.valid = true;
  const std::vector<float> speeds = rope_frequencies(rope);
  const auto half = static_cast<int64_t>(speeds.size());
  const float gain = rope_gain(rope);
  const int32_t* positions = batch.positions.as<int32_t>();
  parallel_rows(batch.num_tokens, int64_t{16} * rope.dim, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[t]) * speeds[static_cast<size_t>(i)];
        values[t * rope.dim + i] = std::cos(angle) * gain;
        values[t * rope.dim + half + i] = std::sin(angle) * gain;
      }
  });
  return values;
}

void CpuOps::gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                       const RaggedBatch& batch, const KvLayer& kv) {
  const int64_t dim = spec.head_dim, q_cols = spec.heads * dim, kv_cols = spec.kv_heads * dim;
  SKIFF_CHECK_EQ(qkv.cols(), q_cols + 2 * kv_cols);
  const float* turns = rope_values(spec.rope, batch);
  const std::vector<int32_t> sequences = sequence_of_rows(batch);

  // Stores keys and values of row r: `exact` where they are in float32 already, else the row's,
  // for which there is room in `scratch`.
  const auto store_position = [&](int64_t r, float* exact, float* scratch) {
    const int seq = sequences[static_cast<size_t>(r)];
    const int32_t position = batch.positions.as<int32_t>()[r];
    const std::byte* row = row_data(qkv, r) + byte_size(qkv.dtype, q_cols);
    if (kv.format.quantized()) {
      float* x = exact;
      if (x == nullptr) copy_row(kernels_, x = scratch, DType::kF32, row, qkv.dtype, 2 * kv_cols);
      return quantize_position(spec, batch, kv, seq, position, x);
    }
    const int64_t at = cache_row(batch, kv, seq, position);
    copy_row(kernels_, cache_data(kv.k, at), kv.k.dtype, row, qkv.dtype, kv_cols);
    copy_row(kernels_, cache_data(kv.v, at), kv.v.dtype, row + byte_size(qkv.dtype, kv_cols),
             qkv.dtype, kv_cols);
  };
  parallel_rows(std::ssize(sequences), qkv.cols(), [&](int64_t begin, int64_t end, int thread) {
    float* scratch = thread_scratch_[static_cast<size_t>(thread)].take<float>(q_cols + kv_cols);
    for (int64_t r = begin; r < end; ++r) {
      float* x = qkv.dtype == DType::kF32 ? qkv.row<float>(r) : scratch;
      std::byte* row = row_data(qkv, r);
      if (x == scratch) copy_row(kernels_, x, DType::kF32, row, qkv.dtype, q_cols + kv_cols);
      for (int h = 0; h < spec.heads + spec.kv_heads; ++h) {
        float* head = x + h * dim;
        const Norm& norm = h < spec.heads ? q : k;
        if (norm.weight) {
          const float mean = kernels_.sum_squares(head, dim) / static_cast<float>(dim);
          kernels_.scale(head, head, 1 / std::sqrt(mean + norm.eps), norm.weight.as<float>(), dim);
        }
        const float* turn = turns + r * spec.rope.dim;
        rotate(head, turn, turn + spec.rope.dim / 2, spec.rope);
      }
      if (x == scratch) copy_row(kernels_, row, qkv.dtype, x, DType::kF32, q_cols + kv_cols);

      store_position(r, x == scratch ? nullptr : x + q_cols, scratch);
    }
  });
}

}  // namespace skiff::cpu
