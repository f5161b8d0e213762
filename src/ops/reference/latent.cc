#include <algorithm>
#include <cmath>

#include "ops/latent_row.h"
#include "ops/reference/math.h"
#include "ops/reference/paging.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"
#include "ops/reference/weights.h"

namespace skiff::reference {
namespace {

// The mean of the first `dim` elements of each cached row, with the weights of the softmax.
std::vector<double> mean_of(const std::vector<std::vector<float>>& cached,
                            const std::vector<double>& score, size_t dim) {
  const double best = *std::max_element(score.begin(), score.end());
  std::vector<double> out(dim);
  double total = 0;
  for (size_t i = 0; i < score.size(); ++i) {
    const double p = std::exp(score[i] - best);
    total += p;
    for (size_t d = 0; d < dim; ++d) out[d] += p * cached[i][d];
  }
  for (double& x : out) x /= total;
  return out;
}

LatentRow row_of(const Mla& spec) { return {spec.kv_rank, spec.rope_dim}; }

std::byte* quantized_row(const KvLayer& cache, const RaggedBatch& batch, int seq, int position) {
  const int32_t page = batch.pages.row<int32_t>(seq)[position / cache.page_size];
  return latent_row(cache.k, page, position % cache.page_size);
}

std::vector<float> cached_at(const KvLayer& cache, const Mla& spec, const RaggedBatch& batch,
                             int seq, int position) {
  if (!cache.format.quantized()) return load_row(cache_row(cache.k, batch, seq, position), 0);
  std::vector<float> c(static_cast<size_t>(spec.cached_dim()));
  dequantize_latent(row_of(spec), quantized_row(cache, batch, seq, position), c);
  return c;
}

}  // namespace

void ReferenceOps::heads_linear(Tensor out, Tensor x, const Linear& w) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK(!w.format.quantized(), "{}", describe(w.format));
  for (int64_t r = 0; r < x.rows(); ++r) {
    const Linear matrix = expert_of(w, r % w.experts);
    const std::vector<float> row = load_row(x, r);
    for (int64_t o = 0; o < out.cols(); ++o) store(out, r, o, dot(row, weight_row(matrix, o)));
  }
}

void ReferenceOps::mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec,
                             const RaggedBatch& batch, const KvLayer& cache) {
  const std::vector<float> speeds = rope_frequencies(spec.rope);
  const auto nope = static_cast<size_t>(spec.nope_dim), rope = static_cast<size_t>(spec.rope_dim);
  for_each_row(batch, [&](int seq, int row, int position) {
    std::vector<float> x = load_row(q, row);
    for (size_t head = 0; head < x.size(); head += nope + rope)
      rotate(std::span(x).subspan(head + nope, rope), spec.rope, speeds, position);
    store_row(q, row, x);
    std::vector<float> c = load_row(kv, row);
    rms_norm(std::span(c).first(static_cast<size_t>(spec.kv_rank)), norm);
    rotate(std::span(c).last(rope), spec.rope, speeds, position);
    if (cache.format.quantized())
      quantize_latent(row_of(spec), c, quantized_row(cache, batch, seq, position));
    else
      store_row(cache_row(cache.k, batch, seq, position), 0, c);
  });
}

void ReferenceOps::mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                              const RaggedBatch& batch, const KvLayer& cache) {
  const auto rank = static_cast<size_t>(spec.kv_rank), rope = static_cast<size_t>(spec.rope_dim);
  for_each_row(batch, [&](int seq, int row, int position) {
    std::vector<std::vector<float>> cached;
    cached.reserve(static_cast<size_t>(position) + 1);
    for (int p = 0; p <= position; ++p) cached.push_back(cached_at(cache, spec, batch, seq, p));
    for (int h = 0; h < spec.heads; ++h) {
      const int64_t at = int64_t{row} * spec.heads + h;
      const std::vector<float> latent = load_row(q_latent, at), turned = load_row(q_rope, at);
      std::vector<double> score;
      score.reserve(cached.size());
      for (const std::vector<float>& c : cached)
        score.push_back(spec.scale * (dot(latent, std::span(c).first(rank)) +
                                      dot(turned, std::span(c).last(rope))));
      const std::vector<double> mean = mean_of(cached, score, rank);
      for (size_t d = 0; d < rank; ++d) store(out, at, static_cast<int64_t>(d), mean[d]);
    }
  });
}

}  // namespace skiff::reference
