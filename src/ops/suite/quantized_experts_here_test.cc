// experts of quantized weights where some of the experts are on other ranks.
#include <algorithm>

#include "ops/suite/formats.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr int kHidden = 256, kWidth = 160;
constexpr Router kRouter = {.experts = 8, .top_k = 5, .always = 1};

Linear random_stack(Workspace& ws, const WeightFormat& format, int64_t out, int64_t in) {
  Linear w = random_weight(ws, format, {.experts = kRouter.total(), .out = out, .in = in});
  for (int64_t e = 0; e < w.scale.rows(); ++e)
    for (int64_t i = 0; i < w.scale.cols(); ++i) put(w.scale, e, i, 0.002 * ws.rng.normal());
  return w;
}

// The experts of `router` of a tensor that has as much for each of all experts.
Tensor part_of(Workspace& ws, const Tensor& whole, const Router& router) {
  if (!whole) return {};
  const int64_t all = kRouter.total();
  const size_t each = byte_size(whole.dtype, whole.elements() / all);
  Tensor part = whole;
  part.dim[0] = whole.dim[0] / all * router.total();
  part.data = ws.output(DType::kU8, {router.total(), static_cast<int64_t>(each)}).data;
  const auto copy = [&](int to, int from, int n) {
    std::copy_n(static_cast<const std::byte*>(whole.data) + static_cast<size_t>(from) * each,
                static_cast<size_t>(n) * each,
                static_cast<std::byte*>(part.data) + static_cast<size_t>(to) * each);
  };
  copy(0, router.before, router.here());
  copy(router.here(), router.experts, router.always);
  return part;
}

Linear part_of(Workspace& ws, Linear w, const Router& router) {
  for (Tensor* t : {&w.weight, &w.scale, &w.zero}) *t = part_of(ws, *t, router);
  w.experts = router.total();
  return w;
}

// The judge is that of ExpertsHereAddTheirPart: all experts, with the weights of those that are
// elsewhere zero. A single token's copies are each multiplied alone, wherever its other copies are:
// bit for bit.
TEST_P(OpSuite, QuantizedExpertsHereAddTheirPart) {
  for (const WeightFormat& format :
       {WeightFormat{DType::kI8, 1, 0, kF32}, WeightFormat{DType::kI4, 1, 0, kF32},
        WeightFormat{DType::kI4, 1, 128, kBF16},
        WeightFormat{DType::kU4, 1, 128, DType::kF16, DType::kU4}}) {
    if (!ops->multiplies(format)) continue;
    for (const int tokens : {1, 2, 9}) {
      SCOPED_TRACE(fmt::format("{}: {} tokens", describe(format), tokens));
      Workspace ws(static_cast<uint64_t>(tokens));
      const Tensor x = ws.random(kBF16, {tokens, kHidden});
      const Tensor logits = ws.random(kF32, {tokens, kRouter.experts}, 2);
      const Linear gate_up = random_stack(ws, format, int64_t{2} * kWidth, kHidden);
      const Linear down = random_stack(ws, format, kHidden, kWidth);
      const auto layer = [&](const Routing& routing, const Linear& g, const Linear& d) {
        Buffer owners[2];
        const Linear ready[] = {ops->prepare(g, format, &owners[0]),
                                ops->prepare(d, format, &owners[1])};
        const Tensor out = ws.output(kBF16, {tokens, kHidden});
        Arena arena(Buffer::pinned(8 << 20));
        ops->experts(out, x, routing, ready[0], ready[1], Act::kSilu, arena);
        ops->wait(ops->mark());
        return out;
      };
      for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 4}}) {
        Router router = kRouter;
        router.before = first;
        router.behind = router.experts - first - count;
        Arena arena(Buffer::pinned(1 << 20));
        const Routing all = ops->route(logits, {}, kRouter, arena);
        const Routing mine = ops->route(logits, {}, router, arena);
        for (int64_t t = 0; t < tokens; ++t)
          for (int k = 0; k < kRouter.per_token(); ++k)
            if (mine.expert.row<int32_t>(t)[k] < 0) all.weight.row<float>(t)[k] = 0;
        const Tensor want = layer(all, gate_up, down);
        const Tensor got = layer(mine, part_of(ws, gate_up, router), part_of(ws, down, router));
        double most = 0;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < kHidden; ++i) most = std::max(most, std::abs(at(want, t, i)));
        EXPECT_GT(most, 0);
        const bool same = tokens == 1 || ops->batch_invariant();
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < kHidden; ++i)
            ASSERT_NEAR(at(got, t, i), at(want, t, i), same ? 0 : 4 * kBf16Round * most) << t;
      }
    }
  }
}

}  // namespace
}  // namespace skiff::suite
