#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"
#include "ops/layer_arena.h"

namespace skiff::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void softmax(const float* x, std::vector<float>& p) {
  const float best = *std::max_element(x, x + p.size());
  double total = 0;
  for (size_t e = 0; e < p.size(); ++e) total += std::exp(static_cast<double>(x[e]) - best);
  for (size_t e = 0; e < p.size(); ++e)
    p[e] = static_cast<float>(std::exp(static_cast<double>(x[e]) - best) / total);
}

void sigmoid(const float* x, std::vector<float>& p) {
  for (size_t e = 0; e < p.size(); ++e)
    p[e] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x[e]))));
}

// Sorts the copies of experts that are here by expert: a stable counting sort.
void sort_by_expert(const Routing& r, int experts) {
  const int64_t copies = r.order.elements();
  const int32_t* expert = r.expert.as<int32_t>();
  int32_t* start = r.expert_start.as<int32_t>();
  std::fill_n(start, experts + 1, 0);
  for (int64_t i = 0; i < copies; ++i)
    if (expert[i] >= 0) ++start[expert[i] + 1];
  std::partial_sum(start, start + experts + 1, start);
  std::vector<int32_t> next(start, start + experts);
  for (int64_t i = 0; i < copies; ++i)
    if (expert[i] >= 0)
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

// What a group of `size` experts is judged by.
float judged(const float* group, size_t size, ExpertGroups::Judge judge) {
  float first = group[0], second = kNever;
  for (size_t i = 1; i < size; ++i) {
    second = std::max(second, std::min(first, group[i]));
    first = std::max(first, group[i]);
  }
  return judge == ExpertGroups::kBest || size == 1 ? first : first + second;
}

// Experts outside of the best groups get a score that is never chosen.
void drop_groups(const ExpertGroups& groups, std::vector<float>& score, std::vector<float>& worth,
                 std::vector<int32_t>& ids) {
  if (groups.keep == groups.count) return;
  const auto count = static_cast<size_t>(groups.count), size = score.size() / count;
  worth.resize(count);
  ids.resize(count);
  for (size_t g = 0; g < count; ++g) worth[g] = judged(&score[g * size], size, groups.judge);
  choose(worth, ids, groups.keep);
  for (size_t i = static_cast<size_t>(groups.keep); i < count; ++i)
    std::fill_n(&score[static_cast<size_t>(ids[i]) * size], size, kNever);
}

}  // namespace

Routing CpuOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  const int64_t tokens = logits.rows(), k = router.top_k, experts = router.experts;
  const int64_t all = router.per_token();
  SKIFF_CHECK_EQ(logits.cols(), experts);
  SKIFF_CHECK(k >= 1 && k <= experts, "top_k {} of {} experts", k, experts);
  SKIFF_CHECK(router.groups.count >= 1 && experts % router.groups.count == 0, "{} groups of {}",
              router.groups.count, experts);
  const bool softmaxed = router.score == Router::kSoftmax;
  const Routing out = take_routing(arena, tokens, router);
  parallel_rows(tokens, 16 * experts, [&](int64_t begin, int64_t end, int) {
    std::vector<float> p(static_cast<size_t>(experts)), score, worth;
    std::vector<int32_t> ids(static_cast<size_t>(experts)), groups;
    for (int64_t t = begin; t < end; ++t) {
      softmaxed ? softmax(logits.row<float>(t), p) : sigmoid(logits.row<float>(t), p);
      score = p;
      if (bias) kernels_.add(score.data(), bias.as<float>(), experts);
      drop_groups(router.groups, score, worth, groups);
      choose(score, ids, router.top_k);
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += p[static_cast<size_t>(ids[static_cast<size_t>(i)])];
      const float divisor = !router.renorm ? 1 : softmaxed ? std::max(sum, 1e-12f) : sum + 1e-20f;
      for (int64_t i = 0; i < k; ++i) {
        const int32_t e = ids[static_cast<size_t>(i)];
        out.expert.row<int32_t>(t)[i] = router.place_of(e);
        out.weight.row<float>(t)[i] = p[static_cast<size_t>(e)] / divisor * router.factor;
      }
      for (int64_t i = k; i < all; ++i) {
        out.expert.row<int32_t>(t)[i] = static_cast<int32_t>(router.here() + i - k);
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

  int64_t per_token() const { return routing.expert.cols(); }
};

// The copies of some tokens whose experts are here, sorted by expert.
struct CpuOps::Copies {
  static constexpr int32_t kElsewhere = -1;
  std::vector<Group> groups;  // an expert's each
  std::vector<int32_t> all;   // numbers t * K + k
  std::vector<int32_t> at;    // for each copy of the tokens its place in `all`, or kElsewhere
};

CpuOps::Copies CpuOps::copies_of(const ExpertCall& call, int64_t begin, int64_t end) {
  const int64_t k = call.per_token();
  const int32_t* order = call.routing.order.as<int32_t>();
  const int32_t* start = call.routing.expert_start.as<int32_t>();
  Copies copies{.groups = {},
                .all = {},
                .at = std::vector(static_cast<size_t>((end - begin) * k), Copies::kElsewhere)};
  for (int64_t e = 0; e < call.gate_up.experts; ++e) {
    const int64_t first = std::ssize(copies.all);
    const int32_t* from = std::lower_bound(order + start[e], order + start[e + 1], begin * k);
    const int32_t* to = std::lower_bound(from, order + start[e + 1], end * k);
    copies.all.insert(copies.all.end(), from, to);
    if (from != to) copies.groups.push_back({first, to - from, e});
  }
  for (size_t i = 0; i < copies.all.size(); ++i)
    copies.at[static_cast<size_t>(copies.all[i] - begin * k)] = static_cast<int32_t>(i);
  return copies;
}

// Returns the result of each copy, [copies, hidden].
const float* CpuOps::multiply_copies(const ExpertCall& call, const Copies& copies) {
  const PanelShape down = PanelShape::of(call.down);
  const int64_t width = down.in, hidden = down.out, rows = std::ssize(copies.all);
  float* inner = inner_.take<float>(rows * 2 * width);
  float* outer = outer_.take<float>(rows * hidden);
  if (rows == 0) return outer;
  const std::function<int64_t(int64_t)> token = [&](int64_t i) {
    return copies.all[static_cast<size_t>(i)] / call.per_token();
  };
  const DType act = call.x.dtype;
  product(copies.groups, operand(call.x, act, copies.groups, call.gate_up, &token), call.gate_up,
          [&](int64_t r, int64_t col, float* values, int64_t n) {
            std::copy_n(values, n, inner + r * 2 * width + col);
          });

  parallel_rows(rows, width, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      float* gate = inner + r * 2 * width;
      activate(gate, gate, gate + width, width, call.act);
    }
  });
  Tensor middle = host_tensor(inner, DType::kF32, {rows, width});
  middle.row_stride = 2 * width;

  product(copies.groups, operand(middle, act, copies.groups, call.down, nullptr), call.down,
          [&](int64_t r, int64_t col, float* values, int64_t n) {
            std::copy_n(values, n, outer + r * hidden + col);
          });
  return outer;
}

// Computes tokens [begin, end): their copies go through both GEMMs, then each token sums its own.
void CpuOps::expert_chunk(const ExpertCall& call, int64_t begin, int64_t end) {
  const Copies copies = copies_of(call, begin, end);
  const float* outer = multiply_copies(call, copies);
  const int64_t k = call.per_token(), hidden = call.out.cols();
  parallel_rows(end - begin, hidden * k, [&](int64_t first, int64_t last, int thread) {
    float* sum = thread_scratch_[static_cast<size_t>(thread)].take<float>(hidden);
    for (int64_t t = first; t < last; ++t) {
      std::fill_n(sum, hidden, 0.0f);
      for (int64_t i = 0; i < k; ++i) {
        const int32_t at = copies.at[static_cast<size_t>(t * k + i)];
        if (at == Copies::kElsewhere) continue;
        kernels_.add_scaled(sum, call.routing.weight.row<float>(begin + t)[i],
                            outer + int64_t{at} * hidden, hidden);
      }
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
