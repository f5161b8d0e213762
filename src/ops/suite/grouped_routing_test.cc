// route with sigmoid scores, groups of experts and a factor: DeepSeek-V2's and V3's routers.
#include <algorithm>
#include <numeric>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

Arena make_arena() { return Arena(Buffer::pinned(4 << 20)); }

// What dropped experts score in a wrong implementation, and -inf in a right one.
constexpr double kDropped = -INFINITY;

std::vector<double> weights_of(const Tensor& logits, int64_t t, const Router& router) {
  std::vector<double> p;
  double best = -INFINITY, sum = 0;
  for (int64_t e = 0; e < logits.cols(); ++e) best = std::max(best, at(logits, t, e));
  for (int64_t e = 0; e < logits.cols(); ++e) {
    const double x = at(logits, t, e);
    p.push_back(router.score == Router::kSigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - best));
    sum += p.back();
  }
  if (router.score == Router::kSoftmax)
    for (double& x : p) x /= sum;
  return p;
}

std::vector<int32_t> by_score(const std::vector<double>& score) {
  std::vector<int32_t> ids(score.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  return ids;
}

double judged(std::vector<double> group, ExpertGroups::Judge judge) {
  std::ranges::sort(group, std::greater());
  return group[0] + (judge == ExpertGroups::kTwoBest && group.size() > 1 ? group[1] : 0);
}

// The experts that a token should choose, best first.
std::vector<int32_t> chosen(std::vector<double> score, const Router& router, double dropped) {
  const auto count = static_cast<size_t>(router.groups.count), size = score.size() / count;
  std::vector<double> worth;
  for (size_t g = 0; g < count; ++g) {
    const auto begin = score.begin() + static_cast<std::ptrdiff_t>(g * size);
    worth.push_back(
        judged({begin, begin + static_cast<std::ptrdiff_t>(size)}, router.groups.judge));
  }
  const std::vector<int32_t> groups = by_score(worth);
  for (size_t i = static_cast<size_t>(router.groups.keep); i < count; ++i)
    for (size_t e = 0; e < size; ++e) score[static_cast<size_t>(groups[i]) * size + e] = dropped;
  std::vector<int32_t> ids = by_score(score);
  ids.resize(static_cast<size_t>(router.top_k));
  return ids;
}

// Returns the number of tokens that would choose other experts if dropped ones scored 0.
int expect_routing(Ops& ops, const Tensor& logits, const Tensor& bias, const Router& router) {
  Arena arena = make_arena();
  const Routing got = ops.route(logits, bias, router, arena);
  ops.wait(ops.mark());
  int differ = 0;
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const std::vector<double> p = weights_of(logits, t, router);
    std::vector<double> score = p;
    for (size_t e = 0; bias && e < p.size(); ++e) score[e] += at(bias, static_cast<int64_t>(e));
    const std::vector<int32_t> want = chosen(score, router, kDropped);
    differ += chosen(score, router, 0) != want;
    double sum = 0;
    for (const int32_t e : want) sum += p[static_cast<size_t>(e)];
    const double divisor = router.renorm ? sum : 1;
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got.expert.row<int32_t>(t)[k], want[k]) << "token " << t << ", choice " << k;
      const double weight = p[static_cast<size_t>(want[k])] / divisor * router.factor;
      // E additions of positive terms, exp (8 roundings), divisions and the factor.
      EXPECT_NEAR(got.weight.row<float>(t)[k], weight,
                  (2.0 * router.experts + 40) * kF32Round * weight);
    }
    for (int i = 0; i < router.always; ++i) {
      EXPECT_EQ(got.expert.row<int32_t>(t)[router.top_k + i], router.experts + i);
      EXPECT_EQ(got.weight.row<float>(t)[router.top_k + i], 1);
    }
  }
  EXPECT_EQ(got.expert_start.as<int32_t>()[router.total()], got.expert.elements());
  return differ;
}

Router router_of(Router::Score score, const ExpertGroups& groups, int experts, int top_k) {
  return {.experts = experts, .top_k = top_k, .score = score, .groups = groups};
}

TEST_P(OpSuite, RouteWithGroups) {
  constexpr ExpertGroups kAll[] = {{},
                                   {4, 2, ExpertGroups::kTwoBest},
                                   {4, 1, ExpertGroups::kBest},
                                   {8, 3, ExpertGroups::kBest},
                                   {8, 4, ExpertGroups::kTwoBest},
                                   {2, 2, ExpertGroups::kTwoBest}};
  for (const int tokens : {0, 1, 32, 70})
    for (const int experts : {16, 64, 256})
      for (const ExpertGroups& groups : kAll)
        for (const auto score : {Router::kSoftmax, Router::kSigmoid})
          for (const double bias_scale : {0.0, 0.2}) {
            SCOPED_TRACE(
                fmt::format("{} tokens, {} experts, {} of {} groups, judge {}, score {}, "
                            "bias {}",
                            tokens, experts, groups.keep, groups.count,
                            static_cast<int>(groups.judge), static_cast<int>(score), bias_scale));
            Workspace ws(static_cast<uint64_t>(tokens * 100 + experts));
            const Tensor logits = ws.random(DType::kF32, {tokens, experts}, 2);
            const Tensor bias =
                bias_scale > 0 ? ws.random(DType::kF32, {experts}, bias_scale) : Tensor{};
            Router router = router_of(score, groups, experts, 4);
            router.renorm = tokens != 32;
            router.factor = 2.5f;
            router.always = tokens == 70 ? 2 : 0;
            expect_routing(*ops, logits, bias, router);
          }
}

// DeepSeek-V3's router, and others whose groups are no warps of a device: of 20, 48 and 96 experts.
TEST_P(OpSuite, RouteWithGroupsOfManySizes) {
  struct Case {
    int tokens, experts, top_k;
    ExpertGroups groups;
  };
  for (const Case& c : {Case{33, 256, 8, {8, 4, ExpertGroups::kTwoBest}},
                        {256, 256, 8, {8, 4, ExpertGroups::kTwoBest}},
                        {65, 160, 6, {8, 3, ExpertGroups::kBest}},
                        {40, 384, 8, {8, 2, ExpertGroups::kTwoBest}},
                        {40, 384, 9, {4, 1, ExpertGroups::kTwoBest}},
                        {40, 512, 10, {32, 5, ExpertGroups::kTwoBest}},
                        {40, 64, 8, {32, 4, ExpertGroups::kTwoBest}},
                        {40, 31, 5, {31, 7, ExpertGroups::kTwoBest}}}) {
    SCOPED_TRACE(fmt::format("{} tokens, {} experts, {} of {} groups", c.tokens, c.experts,
                             c.groups.keep, c.groups.count));
    Workspace ws(static_cast<uint64_t>(c.tokens + c.experts));
    const Tensor logits = ws.random(DType::kF32, {c.tokens, c.experts}, 2);
    const Tensor bias = ws.random(DType::kF32, {c.experts}, 0.2);
    Router router = router_of(Router::kSigmoid, c.groups, c.experts, c.top_k);
    router.factor = 2.5f;
    expect_routing(*ops, logits, bias, router);
  }
}

// With scores below zero a dropped expert that scored 0 would be chosen before all others.
TEST_P(OpSuite, RouteDropsGroupsWhateverTheirScores) {
  Workspace ws(3);
  const Tensor logits = ws.random(DType::kF32, {40, 16}), bias = ws.random(DType::kF32, {16}, 0.1);
  for (int e = 0; e < 16; ++e) put(bias, e, 0, at(bias, e) - 1.5);
  const Router router = router_of(Router::kSigmoid, {4, 2, ExpertGroups::kTwoBest}, 16, 4);
  EXPECT_EQ(expect_routing(*ops, logits, bias, router), 40);
}

// Weights come from the scores without bias, never from what is left of a sum with it.
TEST_P(OpSuite, RouteKeepsTinyWeightsExact) {
  Workspace ws(4);
  const Tensor logits = ws.random(DType::kF32, {33, 32}, 0.5), bias = ws.random(DType::kF32, {32});
  for (int64_t t = 0; t < 33; ++t)
    for (int e = 0; e < 32; ++e) put(logits, t, e, at(logits, t, e) - 18.4);
  for (const bool renorm : {false, true}) {
    Router router = router_of(Router::kSigmoid, {4, 2, ExpertGroups::kTwoBest}, 32, 8);
    router.renorm = renorm;
    expect_routing(*ops, logits, bias, router);
  }
}

// Scores that even together are far below what a softmax gives are still weighed exactly.
TEST_P(OpSuite, RouteDividesByTheSmallestSums) {
  Workspace ws(5);
  const Tensor logits = ws.random(DType::kF32, {9, 16}, 0.5);
  for (int64_t t = 0; t < 9; ++t)
    for (int e = 0; e < 16; ++e) put(logits, t, e, at(logits, t, e) - 32);
  expect_routing(*ops, logits, {}, router_of(Router::kSigmoid, {}, 16, 4));
}

TEST_P(OpSuite, RouteBreaksTiesOfGroupsDownwards) {
  Workspace ws(6);
  const Tensor logits = ws.output(DType::kF32, {5, 32});
  for (int64_t t = 0; t < 5; ++t)
    for (int e = 0; e < 32; ++e) put(logits, t, e, 0.25 * static_cast<double>((e + t) % 4));
  for (const auto judge : {ExpertGroups::kBest, ExpertGroups::kTwoBest})
    for (const auto score : {Router::kSoftmax, Router::kSigmoid})
      expect_routing(*ops, logits, {}, router_of(score, {8, 3, judge}, 32, 6));
}

}  // namespace
}  // namespace skiff::suite
