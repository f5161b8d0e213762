#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/cpu/logits.h"

namespace skiff::cpu {
namespace {

// The tokens that a row may draw, and their weights: probabilities up to a common factor.
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<double> weights;
  double total = 0;
};

// Removes all but the best tokens whose weights sum up to `enough`. More and more tokens are
// sorted, because few usually are enough.
void keep_mass(const Logits& x, float best, const Draw& draw, double enough,
               std::vector<int32_t>& ids) {
  double sum = 0;
  size_t sorted = 0;
  for (size_t most = 64; sorted < ids.size(); most *= 8) {
    const auto end = ids.begin() + std::min(std::ssize(ids), static_cast<ptrdiff_t>(most));
    std::partial_sort(ids.begin() + static_cast<ptrdiff_t>(sorted), end, ids.end(), Better{x});
    for (; sorted < static_cast<size_t>(end - ids.begin()); ++sorted) {
      sum += std::exp((static_cast<double>(x[ids[sorted]]) - best) / draw.temperature);
      if (sum >= enough) return ids.resize(sorted + 1);
    }
  }
}

double mass(const Logits& x, float best, const Draw& draw, Distribution& dist) {
  dist.weights.clear();
  double total = 0;
  for (const int32_t id : dist.ids) {
    dist.weights.push_back(std::exp((static_cast<double>(x[id]) - best) / draw.temperature));
    total += dist.weights.back();
  }
  return total;
}

// min_p comes first, then top_k, then top_p as a part of what these leave.
Distribution distribution_of(const Logits& x, float best, const Draw& draw) {
  Distribution dist;
  const double least = least_left(best, draw);
  for (int64_t i = 0; i < x.n; ++i)
    if (x[i] > kNever && x[i] >= least) dist.ids.push_back(static_cast<int32_t>(i));
  if (draw.top_k > 0 && std::ssize(dist.ids) > draw.top_k) {
    std::nth_element(dist.ids.begin(), dist.ids.begin() + draw.top_k, dist.ids.end(), Better{x});
    dist.ids.resize(static_cast<size_t>(draw.top_k));
  }
  dist.total = mass(x, best, draw, dist);
  if (draw.top_p >= 1) return dist;
  keep_mass(x, best, draw, draw.top_p * dist.total, dist.ids);
  dist.total = mass(x, best, draw, dist);
  return dist;
}

// Returns the token that replaces one that is not kept, or -1 where nothing is left to draw from.
int32_t draw_rest(const float* target, const float* draft, int64_t n, double uniform) {
  const auto rest = [&](int64_t i) {
    return std::max(
        std::exp(static_cast<double>(target[i])) - std::exp(static_cast<double>(draft[i])), 0.0);
  };
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += rest(i);
  double sum = 0;
  int32_t last = -1;
  for (int64_t i = 0; i < n && total > 0; ++i) {
    const double part = rest(i);
    if (!(part > 0)) continue;
    last = static_cast<int32_t>(i);
    sum += part;
    if (sum > uniform * total) break;
  }
  return last;
}

}  // namespace

void CpuOps::draw_logprobs(Tensor logits, const SampleBatch& batch) {
  pool_.parallel_for(logits.rows(), [&](int64_t r, int) {
    const Logits x = {logits.row<float>(r), logits.cols()};
    const float best = kernels_.max(x.x, x.n);
    const Draw draw = draw_of(batch, r);
    Distribution dist;
    if (draw.temperature <= 0 || draw.top_p <= 0 || !std::isfinite(best)) {
      const auto first = best == kNever ? 0 : std::find(x.x, x.x + x.n, best) - x.x;
      dist = {.ids = {static_cast<int32_t>(first)}, .weights = {1}, .total = 1};
    } else {
      dist = distribution_of(x, best, draw);
    }
    float* out = logits.row<float>(r);
    std::fill_n(out, x.n, kNever);
    for (size_t i = 0; i < dist.ids.size(); ++i)
      out[dist.ids[i]] = static_cast<float>(std::log(dist.weights[i] / dist.total));
  });
}

void CpuOps::check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) {
  pool_.parallel_for(checks.row.rows(), [&](int64_t i, int) {
    const int32_t row = checks.row.as<int32_t>()[i], token = checks.token.as<int32_t>()[i];
    SKIFF_CHECK(token >= 0 && token < target.cols(), "token {} of {}", token, target.cols());
    const float *p = target.row<float>(row),
                *q = draft.row<float>(checks.draft_row.as<int32_t>()[i]);
    const double u = checks.keep.as<float>()[i];
    int32_t out = token;
    if (!(u * std::exp(static_cast<double>(q[token])) < std::exp(static_cast<double>(p[token]))))
      out = draw_rest(p, q, target.cols(), static_cast<double>(checks.instead.as<float>()[i]));
    if (out >= 0) ids.as<int32_t>()[row] = out;
  });
}

}  // namespace skiff::cpu
