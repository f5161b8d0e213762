#include <algorithm>
#include <cmath>

#include "ops/kv_quant.h"
#include "ops/reference/math.h"
#include "ops/reference/paging.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"

namespace skiff::reference {
namespace {

// The keys or the values of a layer.
struct Half {
  const KvLayer& kv;
  const Tensor &pages, &scales;
};
Half keys_of(const KvLayer& kv) { return {kv, kv.k, kv.k_scale}; }
Half values_of(const KvLayer& kv) { return {kv, kv.v, kv.v_scale}; }

// One head of a position in a quantized cache.
KvHead cache_head(const Half& half, const RaggedBatch& batch, int seq, int position, int head) {
  const int page_size = half.kv.page_size;
  const int32_t page = batch.pages.row<int32_t>(seq)[position / page_size];
  return kv_head(half.pages, half.scales, half.kv.format, page, position % page_size, head);
}

// Stores all heads of a position, x [kv_heads * head_dim].
void store_position(const Half& half, const RaggedBatch& batch, int seq, int position,
                    std::span<const float> x) {
  if (!half.kv.format.quantized())
    return store_row(cache_row(half.pages, batch, seq, position), 0, x);
  const auto dim = static_cast<size_t>(half.pages.dim[3]);
  for (size_t h = 0; h * dim < x.size(); ++h)
    quantize(half.kv.format, x.subspan(h * dim, dim),
             cache_head(half, batch, seq, position, static_cast<int>(h)));
}

std::vector<float> load_head(const Half& half, const RaggedBatch& batch, int seq, int position,
                             int head) {
  const int64_t dim = half.pages.dim[3];
  if (!half.kv.format.quantized())
    return load_row(cache_row(half.pages, batch, seq, position).col_range(head * dim, dim), 0);
  std::vector<float> x(static_cast<size_t>(dim));
  dequantize(half.kv.format, cache_head(half, batch, seq, position, head), x);
  return x;
}

std::span<float> head_of(std::vector<float>& row, int head, int head_dim) {
  return std::span(row).subspan(static_cast<size_t>(head) * static_cast<size_t>(head_dim),
                                static_cast<size_t>(head_dim));
}

// Attention of one query head: the weighted mean of the values of the rows that it attends to.
std::vector<double> attend(std::span<const float> q, const std::vector<std::vector<float>>& keys,
                           const std::vector<std::vector<float>>& values) {
  std::vector<double> score;
  score.reserve(keys.size());
  for (const auto& k : keys) {
    score.push_back(dot(q, k) / std::sqrt(static_cast<double>(q.size())));
  }
  const double best = *std::max_element(score.begin(), score.end());
  std::vector<double> out(q.size());
  double total = 0;
  for (size_t i = 0; i < score.size(); ++i) {
    const double p = std::exp(score[i] - best);
    total += p;
    for (size_t d = 0; d < out.size(); ++d) out[d] += p * values[i][d];
  }
  for (double& x : out) x /= total;
  return out;
}

}  // namespace

void ReferenceOps::gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                             const RaggedBatch& batch, const KvLayer& kv) {
  const std::vector<float> speeds = rope_frequencies(spec.rope);
  for_each_row(batch, [&](int seq, int row, int position) {
    std::vector<float> x = load_row(qkv, row);
    for (int h = 0; h < spec.heads + spec.kv_heads; ++h) {
      const std::span<float> head = head_of(x, h, spec.head_dim);
      const Norm& norm = h < spec.heads ? q : k;
      if (norm.weight) rms_norm(head, norm);
      rotate(head, spec.rope, speeds, position);
    }
    store_row(qkv, row, x);
    x = load_row(qkv, row);
    const auto kv_cols = static_cast<size_t>(spec.kv_heads) * static_cast<size_t>(spec.head_dim);
    const auto all = std::span<const float>(x).last(2 * kv_cols);
    store_position(keys_of(kv), batch, seq, position, all.first(kv_cols));
    store_position(values_of(kv), batch, seq, position, all.last(kv_cols));
  });
}

void ReferenceOps::gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                              const KvLayer& kv) {
  const int group = spec.heads / spec.kv_heads;
  for_each_row(batch, [&](int seq, int row, int position) {
    const int first = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
    std::vector<float> queries = load_row(q, row);
    for (int h = 0; h < spec.heads; ++h) {
      std::vector<std::vector<float>> keys, values;
      for (int p = first; p <= position; ++p) {
        keys.push_back(load_head(keys_of(kv), batch, seq, p, h / group));
        values.push_back(load_head(values_of(kv), batch, seq, p, h / group));
      }
      const std::vector<double> y = attend(head_of(queries, h, spec.head_dim), keys, values);
      for (int d = 0; d < spec.head_dim; ++d) {
        store(out, row, static_cast<int64_t>(h) * spec.head_dim + d, y[static_cast<size_t>(d)]);
      }
    }
  });
}

}  // namespace skiff::reference
