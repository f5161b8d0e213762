#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/layer_arena.h"
#include "ops/reference/math.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"
#include "ops/reference/weights.h"

namespace skiff::reference {
namespace {

std::vector<float> softmax(std::span<const float> x) {
  const float best = *std::max_element(x.begin(), x.end());
  double total = 0;
  for (const float v : x) total += std::exp(static_cast<double>(v) - best);
  std::vector<float> p;
  for (const float v : x) {
    p.push_back(static_cast<float>(std::exp(static_cast<double>(v) - best) / total));
  }
  return p;
}

std::vector<float> sigmoid(std::span<const float> x) {
  std::vector<float> p;
  for (const float v : x)
    p.push_back(static_cast<float>(1 / (1 + std::exp(-static_cast<double>(v)))));
  return p;
}

// The `count` entries of highest score, best first, ties to the lower index.
std::vector<int32_t> best_of(std::span<const float> score, int count) {
  std::vector<int32_t> ids(score.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(count));
  return ids;
}

// What a group is judged by.
float judged(std::span<const float> group, ExpertGroups::Judge judge) {
  if (judge == ExpertGroups::kBest || group.size() == 1)
    return *std::max_element(group.begin(), group.end());
  const std::vector<int32_t> two = best_of(group, 2);
  return group[static_cast<size_t>(two[0])] + group[static_cast<size_t>(two[1])];
}

// Sets the scores of all experts outside of the best groups to -inf.
void drop_groups(std::vector<float>& score, const ExpertGroups& groups) {
  const auto count = static_cast<size_t>(groups.count), size = score.size() / count;
  const auto group = [&](size_t g) { return std::span(score).subspan(g * size, size); };
  std::vector<float> worth;
  for (size_t g = 0; g < count; ++g) worth.push_back(judged(group(g), groups.judge));
  std::vector<bool> kept(count);
  for (const int32_t g : best_of(worth, groups.keep)) kept[static_cast<size_t>(g)] = true;
  for (size_t g = 0; g < count; ++g)
    if (!kept[g]) std::ranges::fill(group(g), -std::numeric_limits<float>::infinity());
}

void sort_by_expert(const Routing& routing, int experts) {
  const int64_t copies = routing.order.elements();
  const int32_t* expert = routing.expert.as<int32_t>();
  int32_t* order = routing.order.as<int32_t>();
  int32_t* start = routing.expert_start.as<int32_t>();
  int32_t filled = 0;
  for (int e = 0; e < experts; ++e) {
    start[e] = filled;
    for (int32_t copy = 0; copy < copies; ++copy) {
      if (expert[copy] == e) order[filled++] = copy;
    }
  }
  start[experts] = filled;
}

// down * (act(gate) * up) for one token.
std::vector<double> feed_forward(const std::vector<float>& token, const Linear& gate_up,
                                 const Linear& down, Act act) {
  const int64_t width = gate_up.weight.rows() / 2;
  const std::vector<float> x = input_row(gate_up, token);
  std::vector<float> inner;
  for (int64_t i = 0; i < width; ++i) {
    const double gate = dot(x, weight_row(gate_up, i));
    const double up = dot(x, weight_row(gate_up, width + i));
    inner.push_back(static_cast<float>(activate(gate, act) * up));
  }
  inner = input_row(down, std::move(inner));
  std::vector<double> y;
  for (int64_t o = 0; o < down.weight.rows(); ++o) y.push_back(dot(inner, weight_row(down, o)));
  return y;
}

}  // namespace

Routing ReferenceOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  const int64_t tokens = logits.rows();
  const Routing out = take_routing(arena, tokens, router);
  for (int64_t t = 0; t < tokens; ++t) {
    const bool softmaxed = router.score == Router::kSoftmax;
    const std::vector<float> row = load_row(logits, t);
    const std::vector<float> p = softmaxed ? softmax(row) : sigmoid(row);
    std::vector<float> score = p;
    for (size_t e = 0; bias && e < score.size(); ++e) score[e] += bias.as<float>()[e];
    drop_groups(score, router.groups);
    const std::vector<int32_t> chosen = best_of(score, router.top_k);
    float sum = 0;
    for (const int32_t e : chosen) sum += p[static_cast<size_t>(e)];
    const float divisor = !router.renorm ? 1 : softmaxed ? std::max(sum, 1e-12f) : sum + 1e-20f;
    for (size_t i = 0; i < chosen.size(); ++i) {
      out.expert.row<int32_t>(t)[i] = router.place_of(chosen[i]);
      out.weight.row<float>(t)[i] = p[static_cast<size_t>(chosen[i])] / divisor * router.factor;
    }
    for (int i = 0; i < router.always; ++i) {
      out.expert.row<int32_t>(t)[router.top_k + i] = router.here() + i;
      out.weight.row<float>(t)[router.top_k + i] = 1;
    }
  }
  sort_by_expert(out, router.total());
  return out;
}

void ReferenceOps::experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                           const Linear& down, Act act, Arena&) {
  SKIFF_CHECK(multiplies(gate_up.format) && multiplies(down.format), "{} and {}",
              describe(gate_up.format), describe(down.format));
  for (int64_t t = 0; t < out.rows(); ++t) {
    const std::vector<float> token = load_row(x, t);
    std::vector<float> sum(static_cast<size_t>(out.cols()));
    for (int64_t k = 0; k < routing.expert.cols(); ++k) {
      const int32_t e = routing.expert.row<int32_t>(t)[k];
      if (e < 0) continue;
      const std::vector<double> y =
          feed_forward(token, expert_of(gate_up, e), expert_of(down, e), act);
      const float weight = routing.weight.row<float>(t)[k];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(weight * y[i]);
    }
    store_row(out, t, sum);
  }
}

}  // namespace skiff::reference
