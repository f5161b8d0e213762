#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"
#include "ops/layer_arena.h"

namespace skiff::cpu {
namespace {

void softmax(const float* x, std::vector<float>& p) {
  const float best = *std::max_element(x, x + p.size());
  double total = 0;
  for (size_t e = 0; e < p.size(); ++e) total += std::exp(static_cast<double>(x[e]) - best);
  for (size_t e = 0; e < p.size(); ++e)
    p[e] = static_cast<float>(std::exp(static_cast<double>(x[e]) - best) / total);
}

// Sorts copies by expert: a stable counting sort.
void sort_by_expert(const Routing& r, int experts) {
  const int64_t copies = r.order.elements();
  const int32_t* expert = r.expert.as<int32_t>();
  int32_t* start = r.expert_start.as<int32_t>();
  std::fill_n(start, experts + 1, 0);
  for (int64_t i = 0; i < copies; ++i) ++start[expert[i] + 1];
  std::partial_sum(start, start + experts + 1, start);
  std::vector<int32_t> next(start, start + experts);
  for (int64_t i = 0; i < copies; ++i)
    r.order.as<int32_t>()[next[static_cast<size_t>(expert[i])]++] = static_cast<int32_t>(i);
}

// Chooses the best `count` by falling score, ties to the lower index.
void choose(const std::vector<float>& score, std::vector<int32_t>& ids, int count) {
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    const float x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
}

}  // namespace

Routing CpuOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  const int64_t tokens = logits.rows(), k = router.top_k, experts = router.experts;
  const int64_t all = router.per_token();
  SKIFF_CHECK_EQ(logits.cols(), experts);
  SKIFF_CHECK(k >= 1 && k <= experts, "top_k {} of {} experts", k, experts);
  const Routing out = take_routing(arena, tokens, router);
  parallel_rows(tokens, 16 * experts, [&](int64_t begin, int64_t end, int) {
    std::vector<float> p(static_cast<size_t>(experts)), score;
    std::vector<int32_t> ids(static_cast<size_t>(experts));
    for (int64_t t = begin; t < end; ++t) {
      softmax(logits.row<float>(t), p);
      score = p;
      if (bias) kernels_.add(score.data(), bias.as<float>(), experts);
      choose(score, ids, router.top_k);
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += p[static_cast<size_t>(ids[static_cast<size_t>(i)])];
      const float divisor = router.renorm ? std::max(sum, 1e-12f) : 1;
      for (int64_t i = 0; i < k; ++i) {
        const int32_t e = ids[static_cast<size_t>(i)];
        out.expert.row<int32_t>(t)[i] = e;
        out.weight.row<float>(t)[i] = p[static_cast<size_t>(e)] / divisor;
      }
      for (int64_t i = k; i < all; ++i) {
        out.expert.row<int32_t>(t)[i] = static_cast<int32_t>(experts + i - k);
        out.weight.row<float>(t)[i] = 1;
      }
    }
  });
  sort_by_expert(out, router.total());
  return out;
}

struct CpuOps::ExpertCall {
  Tensor out, x;
  const Routing& routing;
  const Linear &gate_up, &down;
  Act act;
};

// Computes tokens [begin, end): their copies, sorted by expert, go through both GEMMs, then each
// token sums its own.
void CpuOps::expert_chunk(const ExpertCall& call, int64_t begin, int64_t end) {
  const PanelShape up = PanelShape::of(call.gate_up);
  const PanelShape down = PanelShape::of(call.down);
  const int64_t k = call.routing.expert.cols(), copies = (end - begin) * k;
  const int64_t width = down.in, hidden = down.out;
  const int32_t* order = call.routing.order.as<int32_t>();
  const int32_t* start = call.routing.expert_start.as<int32_t>();

  std::vector<Group> groups;
  std::vector<int32_t> copy_at, at_of_copy(static_cast<size_t>(copies));
  for (int64_t e = 0; e < up.experts; ++e) {
    const auto first = static_cast<int64_t>(copy_at.size());
    const int32_t* from = std::lower_bound(order + start[e], order + start[e + 1], begin * k);
    const int32_t* to = std::lower_bound(from, order + start[e + 1], end * k);
    copy_at.insert(copy_at.end(), from, to);
    if (from != to) groups.push_back({first, to - from, e});
  }
  for (size_t i = 0; i < copy_at.size(); ++i)
    at_of_copy[static_cast<size_t>(copy_at[i] - begin * k)] = static_cast<int32_t>(i);

  const std::function<int64_t(int64_t)> token = [&](int64_t i) {
    return copy_at[static_cast<size_t>(i)] / k;
  };
  float* inner = inner_.take<float>(copies * 2 * width);
  const DType act = call.x.dtype;
  product(groups, operand(call.x, act, groups, call.gate_up, &token), call.gate_up,
          [&](int64_t r, int64_t col, float* values, int64_t n) {
            std::copy_n(values, n, inner + r * 2 * width + col);
          });

  parallel_rows(copies, width, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      float* gate = inner + r * 2 * width;
      activate(gate, gate, gate + width, width, call.act);
    }
  });
  Tensor middle = host_tensor(inner, DType::kF32, {copies, width});
  middle.row_stride = 2 * width;

  float* outer = outer_.take<float>(copies * hidden);
  product(groups, operand(middle, act, groups, call.down, nullptr), call.down,
          [&](int64_t r, int64_t col, float* values, int64_t n) {
            std::copy_n(values, n, outer + r * hidden + col);
          });

  parallel_rows(end - begin, hidden * k, [&](int64_t first, int64_t last, int thread) {
    float* sum = thread_scratch_[static_cast<size_t>(thread)].take<float>(hidden);
    for (int64_t t = first; t < last; ++t) {
      std::fill_n(sum, hidden, 0.0f);
      for (int64_t i = 0; i < k; ++i)
        kernels_.add_scaled(sum, call.routing.weight.row<float>(begin + t)[i],
                            outer + at_of_copy[static_cast<size_t>(t * k + i)] * hidden, hidden);
      copy_row(kernels_, row_data(call.out, begin + t), call.out.dtype, sum, DType::kF32, hidden);
    }
  });
}

void CpuOps::experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                     const Linear& down, Act act, Arena&) {
  check_prepared(gate_up);
  check_prepared(down);
  SKIFF_CHECK_EQ(gate_up.weight.dim[1], 2 * down.weight.dim[2]);
  const ExpertCall call = {out, x, routing, gate_up, down, act};
  for (int64_t t = 0; t < out.rows(); t += kExpertTokens)
    expert_chunk(call, t, std::min(out.rows(), t + kExpertTokens));
}

}  // namespace skiff::cpu
