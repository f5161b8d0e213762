#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"

namespace skiff::reference {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Loads a row of logits with -inf in place of NaN, which has no place in an order.
std::vector<float> load_logits(Tensor logits, int64_t row) {
  std::vector<float> x = load_row(logits, row);
  for (float& v : x) v = std::isnan(v) ? kMinusInfinity : v;
  return x;
}

std::vector<int32_t> by_falling_logit(const std::vector<float>& x) {
  std::vector<int32_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
  });
  return ids;
}

// The sampling parameters of one row.
struct Draw {
  float temperature, top_p, min_p;
  int32_t top_k;
  double uniform;
};

Draw draw_of(const SampleBatch& batch, int64_t r) {
  return {.temperature = batch.temperature.as<float>()[r],
          .top_p = batch.top_p.as<float>()[r],
          .min_p = batch.min_p.as<float>()[r],
          .top_k = batch.top_k.as<int32_t>()[r],
          .uniform = uniform_draw(static_cast<uint64_t>(batch.seed.as<int64_t>()[r]),
                                  static_cast<uint64_t>(batch.draw.as<int64_t>()[r]))};
}

// The number of tokens that min_p, top_k and top_p keep of `p` (falling, up to a common factor).
size_t kept(const std::vector<double>& p, const Draw& draw) {
  size_t n = 0;
  while (n < p.size() && p[n] > 0 && p[n] >= draw.min_p * p[0]) ++n;
  if (draw.top_k > 0) n = std::min(n, static_cast<size_t>(draw.top_k));
  if (draw.top_p >= 1) return n;
  const double left = std::accumulate(p.begin(), p.begin() + static_cast<long>(n), 0.0);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += p[i];
    if (sum >= draw.top_p * left) return i + 1;
  }
  return n;
}

// The tokens that may be drawn, most likely first, and their probabilities up to a common factor.
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

Distribution distribution_of(const std::vector<float>& x, const Draw& draw) {
  const std::vector<int32_t> ids = by_falling_logit(x);
  const float best = x[static_cast<size_t>(ids[0])];
  if (draw.temperature <= 0 || draw.top_p <= 0 || !std::isfinite(best)) return {{ids[0]}, {1}};
  std::vector<double> p;
  p.reserve(ids.size());
  for (const int32_t id : ids) {
    p.push_back(
        std::exp((static_cast<double>(x[static_cast<size_t>(id)]) - best) / draw.temperature));
  }
  p.resize(kept(p, draw));
  return {.ids = {ids.begin(), ids.begin() + std::ssize(p)}, .weights = std::move(p)};
}

int32_t pick(const std::vector<float>& x, const Draw& draw) {
  const Distribution dist = distribution_of(x, draw);
  const double goal = draw.uniform * std::accumulate(dist.weights.begin(), dist.weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < dist.weights.size(); ++i) {
    sum += dist.weights[i];
    if (sum > goal) return dist.ids[i];
  }
  return dist.ids.back();
}

// Returns p of every token: exp of a row of log-probabilities.
std::vector<double> chances(Tensor logprobs, int64_t row) {
  std::vector<double> p;
  for (const float v : load_row(logprobs, row)) p.push_back(std::exp(static_cast<double>(v)));
  return p;
}

double log_sum_exp(const std::vector<float>& x) {
  const double best = *std::max_element(x.begin(), x.end());
  if (!std::isfinite(best)) return best;
  double sum = 0;
  for (const float v : x) sum += std::exp(v - best);
  return best + std::log(sum);
}

}  // namespace

void ReferenceOps::edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) {
  for (int64_t p = 0; p < edits.row.rows(); ++p) {
    const int32_t page = edits.page.as<int32_t>()[p], first = edits.first.as<int32_t>()[p];
    for (int32_t i = 0; i < edits.count.as<int32_t>()[p]; ++i) {
      const int32_t token = first >= 0 ? first + i : pages.token.row<int32_t>(page)[i];
      logits.row<float>(edits.row.as<int32_t>()[p])[token] += pages.add.row<float>(page)[i];
    }
  }
}

void ReferenceOps::mask_logits(Tensor logits, Tensor rows, Tensor allowed) {
  for (int64_t i = 0; i < rows.rows(); ++i) {
    float* x = logits.row<float>(rows.as<int32_t>()[i]);
    const auto* words = allowed.row<int32_t>(i);
    for (int64_t t = 0; t < logits.cols(); ++t)
      if ((static_cast<uint32_t>(words[t / 32]) >> (t % 32) & 1) == 0) x[t] = kMinusInfinity;
  }
}

void ReferenceOps::penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) {
  for (int64_t i = 0; i < penalties.row.rows(); ++i) {
    const auto* list = seen.lists.row<int32_t>(penalties.slot.as<int32_t>()[i]);
    const float divide = penalties.divide.as<float>()[i];
    for (int64_t k = 1; k <= list[0]; ++k) {
      float& x = logits.row<float>(penalties.row.as<int32_t>()[i])[list[2 * k]];
      x = x > 0 ? x / divide : x * divide;
      const auto count = static_cast<float>(list[2 * k + 1]);
      if (count > 0) x -= penalties.once.as<float>()[i] + penalties.each.as<float>()[i] * count;
    }
  }
}

void ReferenceOps::sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) {
  for (int64_t r = 0; r < logits.rows(); ++r) {
    out_ids.as<int32_t>()[r] = pick(load_logits(logits, r), draw_of(batch, r));
  }
}

void ReferenceOps::draw_logprobs(Tensor logits, const SampleBatch& batch) {
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const std::vector<float> x = load_logits(logits, r);
    const Distribution dist = distribution_of(x, draw_of(batch, r));
    const double total = std::accumulate(dist.weights.begin(), dist.weights.end(), 0.0);
    float* out = logits.row<float>(r);
    std::fill_n(out, logits.cols(), kMinusInfinity);
    for (size_t i = 0; i < dist.weights.size(); ++i)
      out[dist.ids[i]] = static_cast<float>(std::log(dist.weights[i] / total));
  }
}

void ReferenceOps::check_drafts(Tensor ids, Tensor target, Tensor draft,
                                const DraftChecks& checks) {
  for (int64_t i = 0; i < checks.row.rows(); ++i) {
    const int32_t row = checks.row.as<int32_t>()[i], token = checks.token.as<int32_t>()[i];
    const std::vector<double> p = chances(target, row);
    const std::vector<double> q = chances(draft, checks.draft_row.as<int32_t>()[i]);
    const auto t = static_cast<size_t>(token);
    if (static_cast<double>(checks.keep.as<float>()[i]) * q.at(t) < p.at(t)) {
      ids.as<int32_t>()[row] = token;
      continue;
    }
    std::vector<double> sums;
    double sum = 0;
    for (size_t v = 0; v < p.size(); ++v) sums.push_back(sum += std::max(p[v] - q[v], 0.0));
    if (!(sum > 0)) continue;
    const double goal = static_cast<double>(checks.instead.as<float>()[i]) * sum;
    const auto at = std::upper_bound(sums.begin(), sums.end(), goal);
    ids.as<int32_t>()[row] = static_cast<int32_t>(at - sums.begin());
  }
}

void ReferenceOps::logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                            Tensor top_logprobs, Tensor logits, Tensor chosen) {
  const int64_t n = top_ids ? top_ids.cols() : 0;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const std::vector<float> x = load_logits(logits, r);
    const double norm = log_sum_exp(x);
    const float mine = x.at(static_cast<size_t>(chosen.as<int32_t>()[r]));
    chosen_logprob.as<float>()[r] = static_cast<float>(mine - norm);
    chosen_rank.as<int32_t>()[r] = 1 + static_cast<int32_t>(std::count_if(
                                           x.begin(), x.end(), [&](float v) { return v > mine; }));
    if (n == 0) continue;
    const std::vector<int32_t> ids = by_falling_logit(x);
    for (int64_t i = 0; i < n; ++i) {
      const int32_t id = ids.at(static_cast<size_t>(i));
      top_ids.row<int32_t>(r)[i] = id;
      top_logprobs.row<float>(r)[i] = static_cast<float>(x[static_cast<size_t>(id)] - norm);
    }
  }
}

}  // namespace skiff::reference
