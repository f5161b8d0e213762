// route and experts.
#include <algorithm>
#include <numbers>
#include <numeric>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr size_t kArenaBytes = 4 << 20;

Arena make_arena(size_t bytes = kArenaBytes) { return Arena(Buffer::pinned(bytes)); }

// The probabilities of one row by definition.
std::vector<double> softmax(const Tensor& logits, int64_t row) {
  std::vector<double> p;
  double best = -INFINITY, sum = 0;
  for (int64_t e = 0; e < logits.cols(); ++e) best = std::max(best, at(logits, row, e));
  for (int64_t e = 0; e < logits.cols(); ++e) {
    p.push_back(std::exp(at(logits, row, e) - best));
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return p;
}

void expect_order(const Routing& routing, int experts) {
  const int64_t copies = routing.expert.elements();
  const int32_t* expert = routing.expert.as<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(copies)), start{0};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return expert[a] < expert[b]; });
  for (int e = 0; e < experts; ++e) {
    start.push_back(start.back() + static_cast<int32_t>(std::count(expert, expert + copies, e)));
  }
  ASSERT_EQ(routing.order.elements(), copies);
  for (int64_t i = 0; i < copies; ++i) {
    ASSERT_EQ(routing.order.as<int32_t>()[i], order[static_cast<size_t>(i)]) << i;
  }
  for (int e = 0; e <= experts; ++e) {
    ASSERT_EQ(routing.expert_start.as<int32_t>()[e], start[static_cast<size_t>(e)]) << e;
  }
}

void expect_routing(const Routing& got, const Tensor& logits, const Tensor& bias,
                    const Router& router) {
  ASSERT_EQ(got.expert.rows(), logits.rows());
  ASSERT_EQ(got.expert.cols(), router.per_token());
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const std::vector<double> p = softmax(logits, t);
    std::vector<int32_t> ids(p.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto score = [&](int32_t e) {
      return p[static_cast<size_t>(e)] + (bias ? at(bias, e) : 0);
    };
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return score(a) > score(b); });
    double sum = 0;
    for (int k = 0; k < router.top_k; ++k)
      sum += p[static_cast<size_t>(ids[static_cast<size_t>(k)])];
    const double divisor = router.renorm ? std::max(sum, 1e-12) : 1;
    for (int k = 0; k < router.top_k; ++k) {
      const int32_t e = ids[static_cast<size_t>(k)];
      ASSERT_EQ(got.expert.row<int32_t>(t)[k], e) << "token " << t << ", choice " << k;
      const double want = p[static_cast<size_t>(e)] / divisor;
      // E additions of positive terms, exp (8 roundings), two divisions, k more additions.
      const double bound = (2.0 * router.experts + 32) * kF32Round * want;
      ASSERT_NEAR(got.weight.row<float>(t)[k], want, bound + kF32Round * want);
    }
    for (int i = 0; i < router.always; ++i) {
      ASSERT_EQ(got.expert.row<int32_t>(t)[router.top_k + i], router.experts + i);
      ASSERT_EQ(got.weight.row<float>(t)[router.top_k + i], 1);
    }
  }
  expect_order(got, router.total());
}

void route_case(Ops& ops, int tokens, const Router& router, double bias_scale) {
  SCOPED_TRACE(fmt::format("tokens {} experts {} top_k {} renorm {} bias {} always {}", tokens,
                           router.experts, router.top_k, router.renorm, bias_scale, router.always));
  Workspace ws(static_cast<uint64_t>(tokens * 100 + router.experts));
  const Tensor logits = ws.random(DType::kF32, {tokens, router.experts}, 2);
  const Tensor bias =
      bias_scale > 0 ? ws.random(DType::kF32, {router.experts}, bias_scale) : Tensor{};
  Arena arena = make_arena();
  ws.begin_op({});
  const Routing got = ops.route(logits, bias, router, arena);
  ws.end_op();
  expect_routing(got, logits, bias, router);
}

TEST_P(OpSuite, Route) {
  for (int tokens : {0, 1, 17, 32, 70}) {
    for (int experts : {1, 2, 7, 16, 64, 130}) {
      for (int top_k : {1, 2, 3, 8, experts}) {
        if (top_k > experts) continue;
        for (bool renorm : {false, true}) {
          for (double bias : {0.0, 0.05}) {
            for (int always : {0, 1, 3}) {
              route_case(*ops, tokens,
                         {.experts = experts, .top_k = top_k, .renorm = renorm, .always = always},
                         bias);
            }
          }
        }
      }
    }
  }
}

// Equal logits give equal scores, wherever in a vector register they lie; the lower expert wins.
TEST_P(OpSuite, RouteBreaksTiesDownwards) {
  for (int experts : {5, 16, 37, 64}) {
    Workspace ws(static_cast<uint64_t>(experts));
    const Tensor logits = ws.random(DType::kF32, {9, experts});
    for (int64_t t = 0; t < 9; ++t) {
      for (int e = 0; e < experts; ++e)
        put(logits, t, e, 0.37 * static_cast<double>((e + t) % 3) + 0.1);
    }
    Arena arena = make_arena();
    const Router router{.experts = experts, .top_k = 5};
    expect_routing(ops->route(logits, {}, router, arena), logits, {}, router);
  }
}

TEST_P(OpSuite, RouteSurvivesExtremeLogits) {
  Workspace ws(8);
  const Tensor logits = ws.floats({1e30f, -1e30f, 5, 80, -3000, 3000, 1, 2}).reshaped({2, 4});
  Arena arena = make_arena();
  const Router router{.experts = 4, .top_k = 1};
  const Routing got = ops->route(logits, {}, router, arena);
  EXPECT_EQ(got.expert.row<int32_t>(0)[0], 0);
  EXPECT_EQ(got.expert.row<int32_t>(1)[0], 1);
  EXPECT_EQ(got.weight.row<float>(1)[0], 1);
}

struct MoeCase {
  int tokens, hidden, width, experts, top_k;
  DType weight, act;
  Act kind = Act::kSilu;
  int always = 0;
  int checked_tokens = 1 << 20;  // at most this many are compared with the formula
  int64_t gap = 0;               // elements between the rows of x

  Router router() const { return {.experts = experts, .top_k = top_k, .always = always}; }
};

struct Sum {
  double value = 0, size = 0;
};
Sum dot(const Tensor& x, int64_t row, const Tensor& stack, int64_t expert, int64_t out) {
  Sum s;
  for (int64_t i = 0; i < x.cols(); ++i) {
    const double product = at(x, row, i) * at(stack, expert, out * x.cols() + i);
    s.value += product;
    s.size += std::abs(product);
  }
  return s;
}

// Adds weight * expert(x[row]) to `out`, with the error that float arithmetic may make: dots as
// in linear; the activation's slope is below 1.2 everywhere; what lies between the two products
// may be rounded to the dtype of the activations, so that bf16 machines can multiply it, and so may
// be the expert's result.
void add_expert(std::vector<Approx>& out, const Tensor& x, int64_t row, double weight,
                const Tensor& gate_up, const Tensor& down, int64_t expert, const MoeCase& c) {
  std::vector<Approx> inner;
  for (int64_t i = 0; i < c.width; ++i) {
    const Sum gate = dot(x, row, gate_up, expert, i),
              up = dot(x, row, gate_up, expert, c.width + i);
    const double a = c.kind == Act::kSilu
                         ? gate.value / (1 + std::exp(-gate.value))
                         : 0.5 * gate.value * std::erfc(-gate.value / std::numbers::sqrt2);
    const double dots = (c.hidden + 2) * kF32Round;
    const double h = a * up.value;
    inner.push_back({h, dots * (1.2 * gate.size * std::abs(up.value) + std::abs(a) * up.size) +
                            16 * kF32Round * std::abs(gate.value * up.value) +
                            round_off(c.act) * std::abs(h)});
  }
  for (size_t o = 0; o < out.size(); ++o) {
    double y = 0, bound = 0, size = 0;
    for (size_t i = 0; i < inner.size(); ++i) {
      const double d = at(down, expert, static_cast<int64_t>(o * inner.size() + i));
      y += d * inner[i].value;
      bound += std::abs(d) * inner[i].bound;
      size += std::abs(d * inner[i].value);
    }
    out[o].value += weight * y;
    out[o].bound +=
        weight * (1.1 * bound + (c.width + c.router().per_token() + 4) * kF32Round * size +
                  round_off(c.act) * (std::abs(y) + bound));
  }
}

void experts_case(Ops& ops, const MoeCase& c, bool skewed) {
  SCOPED_TRACE(fmt::format(
      "tokens {} hidden {} width {} experts {} top_k {} always {} weight {} act {}", c.tokens,
      c.hidden, c.width, c.experts, c.top_k, c.always, name(c.weight), name(c.act)));
  const Router router = c.router();
  Workspace ws(static_cast<uint64_t>(c.tokens * 31 + c.hidden));
  const Tensor x = ws.random(c.act, {c.tokens, c.hidden}, 1, c.gap);
  Linear gate_up{.experts = router.total()}, down{.experts = router.total()};
  gate_up.weight = ws.random(c.weight, {router.total(), int64_t{2} * c.width, c.hidden}, 0.3);
  down.weight = ws.random(c.weight, {router.total(), c.hidden, c.width}, 0.3);
  const Tensor met_gate_up = ws.output(c.act, {router.total(), int64_t{2} * c.width, c.hidden});
  const Tensor met_down = ws.output(c.act, {router.total(), c.hidden, c.width});
  convert(met_gate_up, gate_up.weight);
  convert(met_down, down.weight);
  // Skewed: everybody chooses among the first top_k experts, the others get nothing.
  const Tensor logits = ws.random(DType::kF32, {c.tokens, c.experts}, 2);
  for (int64_t t = 0; skewed && t < c.tokens; ++t) {
    for (int e = c.top_k; e < c.experts; ++e) put(logits, t, e, at(logits, t, e) - 50);
  }
  const Tensor out = ws.output(c.act, {c.tokens, c.hidden});
  Buffer own_gate_up, own_down;
  const Linear ready_gate_up = ops.prepare(gate_up, {c.act}, &own_gate_up);
  const Linear ready_down = ops.prepare(down, {c.act}, &own_down);
  EXPECT_EQ(ready_gate_up.weight.dim, gate_up.weight.dim);
  EXPECT_EQ(ready_gate_up.experts, gate_up.experts);
  // A gathered input, gate_up, middle and output of each copy, the routing and lists of jobs.
  const auto copies = static_cast<size_t>(c.tokens) * static_cast<size_t>(router.per_token());
  Arena arena = make_arena(kArenaBytes + copies * static_cast<size_t>(8 * c.hidden + 12 * c.width));
  const Routing routing = ops.route(logits, {}, router, arena);
  ws.begin_op({out});
  ops.experts(out, x, routing, ready_gate_up, ready_down, c.kind, arena);
  ws.end_op();
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t i = 0; i < c.hidden; ++i)
      ASSERT_FALSE(std::isnan(at(out, t, i))) << t << ", " << i;
  const int64_t every = std::max(1, c.tokens / c.checked_tokens);
  for (int64_t t = 0; t < c.tokens; t += every) {
    std::vector<Approx> want(static_cast<size_t>(c.hidden));
    for (int k = 0; k < router.per_token(); ++k) {
      add_expert(want, x, t, routing.weight.row<float>(t)[k], met_gate_up, met_down,
                 routing.expert.row<int32_t>(t)[k], c);
    }
    expect_near(out.row_range(t, 1),
                [&](int64_t, int64_t o) { return want[static_cast<size_t>(o)]; });
  }
}

TEST_P(OpSuite, Experts) {
  constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;
  for (const MoeCase& c : {MoeCase{0, 32, 16, 4, 2, kF32, kF32},
                           {1, 32, 16, 4, 2, kF32, kF32},
                           {17, 33, 21, 5, 3, kF32, kF32},
                           {17, 64, 48, 8, 8, kBF16, kBF16},
                           {1, 64, 48, 64, 6, kBF16, kBF16},
                           {5, 100, 36, 3, 1, kF16, kF32},
                           {40, 65, 17, 6, 2, kF32, kBF16},
                           {33, 96, 32, 4, 2, kF16, kBF16},
                           {9, 40, 24, 1, 1, kBF16, kF32},
                           {6, 48, 32, 4, 2, kF32, kF32, Act::kGelu},
                           {1, 64, 48, 8, 3, kBF16, kBF16, Act::kSilu, 2},
                           {2, 64, 48, 8, 3, kBF16, kBF16, Act::kSilu, 2},
                           {41, 72, 32, 6, 2, kBF16, kBF16, Act::kSilu, 1},
                           {1, 40, 24, 5, 2, kF32, kF32, Act::kSilu, 2},
                           {19, 33, 21, 5, 3, kF16, kF32, Act::kSilu, 3}}) {
    experts_case(*ops, c, false);
    experts_case(*ops, c, true);
  }
}

// Devices cut the rows of an expert into jobs, of a size that depends on the mean of all experts.
// Experts that are always on have all rows. Skewed, some experts need several jobs, of which the
// last may be almost empty, and others get no row. 320 and 192 leave the last tiles of 128 outputs
// and of 64 gated ones partly unused.
TEST_P(OpSuite, ExpertsOfEveryJobSize) {
  const bool device = ops->device() != Device{};
  for (int tokens : device ? std::vector<int>{1, 2, 8, 17, 33, 64, 100, 128, 129, 200, 330, 1024}
                           : std::vector<int>{17, 130}) {
    for (int always : {0, 1, 2}) {
      MoeCase c{tokens, 320, 192, 8, 2, DType::kBF16, DType::kBF16, Act::kSilu, always, 6};
      experts_case(*ops, c, false);
      if (!device) continue;
      experts_case(*ops, c, true);
      c.kind = Act::kGelu, c.weight = DType::kF16;
      experts_case(*ops, c, false);
    }
  }
}

// With many experts to choose from most have no row or few, and those always on have all.
TEST_P(OpSuite, ExpertsOfRaggedSizes) {
  if (ops->device() == Device{}) GTEST_SKIP() << "a host has no jobs";
  for (int tokens : {1, 5, 17, 33, 128, 129}) {
    for (int always : {0, 1, 2}) {
      const MoeCase c{tokens, 256, 128, 40, 3, DType::kBF16, DType::kBF16, Act::kSilu, always, 6};
      experts_case(*ops, c, false);
      experts_case(*ops, c, true);
    }
  }
}

// Rows that are not aligned for vector loads, with weights in a shape that a device may pack: every
// kernel of a device must read the packing.
TEST_P(OpSuite, ExpertsOfUnalignedRows) {
  if (ops->device() == Device{}) GTEST_SKIP() << "a host reads all rows alike";
  for (int tokens : {1, 9, 70}) {
    const MoeCase c{tokens, 128, 64, 6, 2, DType::kBF16, DType::kBF16, Act::kSilu, 1, 1 << 20, 3};
    experts_case(*ops, c, false);
    experts_case(*ops, c, true);
  }
}

// Odd sizes down to 1, where the shape of a stack looks like that of a matrix.
TEST_P(OpSuite, ExpertsOfSmallSizes) {
  for (const DType act : {DType::kF32, DType::kBF16})
    for (const int hidden : {1, 2, 3, 17, 33})
      for (const int width : {1, 2, 3, 15, 16, 31})
        for (const int experts : {1, 3})
          for (const int always : {0, 2})
            experts_case(*ops,
                         {.tokens = 5,
                          .hidden = hidden,
                          .width = width,
                          .experts = experts,
                          .top_k = 1,
                          .weight = act,
                          .act = act,
                          .always = always},
                         false);
}

TEST_P(OpSuite, MoeRowsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  constexpr int kTokens = 37, kWidth = 48, kExperts = 6;
  for (const auto& [act, hidden] :
       {std::pair{DType::kF32, 65}, std::pair{DType::kBF16, 65}, std::pair{DType::kBF16, 264}}) {
    Workspace ws(12);
    const Tensor x = ws.random(act, {kTokens, hidden}), out = ws.output(act, {kTokens, hidden});
    const Tensor logits = ws.random(DType::kF32, {kTokens, kExperts});
    Linear gate_up{.experts = kExperts}, down{.experts = kExperts};
    gate_up.weight = ws.random(act, {kExperts, int64_t{2} * kWidth, hidden}, 0.3);
    down.weight = ws.random(act, {kExperts, hidden, kWidth}, 0.3);
    Buffer own_gate_up, own_down;
    const Linear ready_gate_up = ops->prepare(gate_up, {act}, &own_gate_up);
    const Linear ready_down = ops->prepare(down, {act}, &own_down);
    Arena arena = make_arena();
    expect_rows_independent(kTokens, [&](int begin, int count) {
      arena.reset();
      const Routing routing =
          ops->route(logits.row_range(begin, count), {}, {.experts = kExperts, .top_k = 3}, arena);
      const Tensor part = out.row_range(begin, count);
      ops->experts(part, x.row_range(begin, count), routing, ready_gate_up, ready_down, Act::kSilu,
                   arena);
      RowBytes rows;
      for (int r = 0; r < count; ++r) {
        rows.push_back(row_bytes(part, r));
        const std::vector<std::byte> weight = row_bytes(routing.weight, r);
        rows.back().insert(rows.back().end(), weight.begin(), weight.end());
      }
      return rows;
    });
  }
}

}  // namespace
}  // namespace skiff::suite
