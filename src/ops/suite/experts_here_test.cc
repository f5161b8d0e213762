// route and experts where some of the experts are on other ranks (Router::before and behind).
#include <algorithm>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

Arena make_arena() { return Arena(Buffer::pinned(8 << 20)); }

// The part of an experts' stack [experts, out, in] that lies at `router`'s rank: routed ones and
// those always on, which are the last.
Tensor part_of(Workspace& ws, const Tensor& whole, const Router& router) {
  const int64_t out = whole.dim[1], in = whole.dim[2], each = out * in;
  const Tensor part = ws.output(whole.dtype, {router.total(), out, in});
  const auto width = static_cast<int64_t>(bytes(whole.dtype));
  const auto copy = [&](int64_t to, int64_t from, int64_t n) {
    std::copy_n(static_cast<const std::byte*>(whole.data) + from * each * width, n * each * width,
                static_cast<std::byte*>(part.data) + to * each * width);
  };
  copy(0, router.before, router.here());
  copy(router.here(), router.experts, router.always);
  return part;
}

struct Problem {
  int tokens, hidden, width;
  DType act;
  Router router;  // with all experts
};

std::string text_of(const Problem& p) {
  return fmt::format("{} tokens, {} experts, {} chosen, {} always, {}", p.tokens, p.router.experts,
                     p.router.top_k, p.router.always, name(p.act));
}

// A layer with all experts, and the parts of it that ranks have.
class ExpertsHere {
 public:
  ExpertsHere(Ops& ops, const Problem& problem)
      : ops_(ops), p_(problem), ws_(static_cast<uint64_t>(problem.tokens * 7 + problem.hidden)) {
    const int64_t total = p_.router.total();
    x_ = ws_.random(p_.act, {p_.tokens, p_.hidden});
    logits_ = ws_.random(kF32, {p_.tokens, p_.router.experts}, 2);
    bias_ = ws_.random(kF32, {p_.router.experts}, 0.05);
    gate_up_ = ws_.random(p_.act, {total, int64_t{2} * p_.width, p_.hidden}, 0.3);
    down_ = ws_.random(p_.act, {total, p_.hidden, p_.width}, 0.3);
  }

  Routing route(const Router& router, Arena& arena) {
    return ops_.route(logits_, bias_, router, arena);
  }
  Routing route(const Router& router, Arena& arena, int begin, int count) {
    return ops_.route(logits_.row_range(begin, count), bias_, router, arena);
  }
  // The layer of a rank, for rows of x.
  std::function<Tensor(const Routing&, int, int, Arena&)> layer(const Router& router) {
    Buffer own_gate_up, own_down;
    const Linear gate_up = prepared(gate_up_, router, &own_gate_up);
    const Linear down = prepared(down_, router, &own_down);
    buffers_.push_back(std::move(own_gate_up));
    buffers_.push_back(std::move(own_down));
    return [this, gate_up, down](const Routing& routing, int begin, int count, Arena& arena) {
      const Tensor out = ws_.output(p_.act, {p_.tokens, p_.hidden}).row_range(begin, count);
      ops_.experts(out, x_.row_range(begin, count), routing, gate_up, down, Act::kSilu, arena);
      return out;
    };
  }

 private:
  Linear prepared(const Tensor& stack, const Router& router, Buffer* owner) {
    const Tensor part = part_of(ws_, stack, router);
    return ops_.prepare({.weight = part, .experts = router.total()}, {p_.act}, owner);
  }

  Ops& ops_;
  const Problem p_;
  Workspace ws_;
  Tensor x_, logits_, bias_, gate_up_, down_;
  std::deque<Buffer> buffers_;
};

Router at_rank(Router router, int first, int count) {
  router.before = first;
  router.behind = router.experts - first - count;
  return router;
}

std::vector<Problem> problems() {
  return {{1, 48, 24, kF32, {.experts = 6, .top_k = 2}},
          {37, 65, 21, kF32, {.experts = 7, .top_k = 3, .renorm = false, .always = 2}},
          {40, 64, 32, kBF16, {.experts = 8, .top_k = 8}},
          {33,
           96,
           48,
           kBF16,
           {.experts = 16,
            .top_k = 4,
            .score = Router::kSigmoid,
            .groups = {4, 2, ExpertGroups::kTwoBest},
            .factor = 2.5f}},
          {19, 40, 16, kF32, {.experts = 5, .top_k = 1, .always = 1}}};
}

void expect_places(const Routing& got, const Routing& whole, const Router& router) {
  for (int64_t t = 0; t < whole.expert.rows(); ++t)
    for (int k = 0; k < router.per_token(); ++k) {
      const int expert = whole.expert.row<int32_t>(t)[k];
      const int place =
          k < router.top_k ? router.place_of(expert) : router.here() + k - router.top_k;
      ASSERT_EQ(got.expert.row<int32_t>(t)[k], place) << "token " << t << ", choice " << k;
      ASSERT_EQ(got.weight.row<float>(t)[k], whole.weight.row<float>(t)[k]);
    }
  const int32_t* place = got.expert.as<int32_t>();
  int32_t filled = 0;
  for (int e = 0; e < router.total(); ++e) {
    ASSERT_EQ(got.expert_start.as<int32_t>()[e], filled);
    for (int32_t copy = 0; copy < got.expert.elements(); ++copy)
      if (place[copy] == e) {
        ASSERT_EQ(got.order.as<int32_t>()[filled++], copy);
      }
  }
  ASSERT_EQ(got.expert_start.as<int32_t>()[router.total()], filled);
}

// All ranks choose alike, and each lists the copies of its own experts.
TEST_P(OpSuite, RouteToExpertsHere) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(text_of(p));
    ExpertsHere layer(*ops, p);
    Arena arena = make_arena();
    const Routing whole = layer.route(p.router, arena);
    for (int first = 0; first < p.router.experts; ++first)
      for (const int count : {1, 2, p.router.experts - first}) {
        if (first + count > p.router.experts) continue;
        const Router router = at_rank(p.router, first, count);
        Arena mine = make_arena();
        ASSERT_NO_FATAL_FAILURE(expect_places(layer.route(router, mine), whole, router));
      }
  }
}

// What a rank computes is what all experts together give if the weights of those that are elsewhere
// are zero: bit for bit where rows are independent of each other. Elsewhere the order of additions
// follows from the number of copies, so that gate, up, what lies between the products, and a copy's
// result may each be rounded the other way: four steps of `act` for values of which the largest
// here are below 8.
TEST_P(OpSuite, ExpertsHereAddTheirPart) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(text_of(p));
    ExpertsHere problem(*ops, p);
    const auto whole = problem.layer(p.router);
    for (const auto& [first, count] :
         {std::pair{0, 1}, {1, 2}, {2, p.router.experts - 2}, {p.router.experts - 1, 1}}) {
      const Router router = at_rank(p.router, first, count);
      Arena arena = make_arena();
      const Routing all = problem.route(p.router, arena), mine = problem.route(router, arena);
      for (int64_t t = 0; t < p.tokens; ++t)
        for (int k = 0; k < p.router.per_token(); ++k)
          if (mine.expert.row<int32_t>(t)[k] < 0) all.weight.row<float>(t)[k] = 0;
      const Tensor want = whole(all, 0, p.tokens, arena);
      const Tensor got = problem.layer(router)(mine, 0, p.tokens, arena);
      const double tolerance = ops->batch_invariant() ? 0 : 4 * 8 * round_off(p.act);
      for (int64_t t = 0; t < p.tokens; ++t)
        for (int64_t i = 0; i < p.hidden; ++i)
          ASSERT_NEAR(at(got, t, i), at(want, t, i), tolerance) << t;
    }
  }
}

TEST_P(OpSuite, ExpertsHereLeaveRowsIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "rows depend on the number of rows";
  for (const Problem& p : problems()) {
    SCOPED_TRACE(text_of(p));
    ExpertsHere problem(*ops, p);
    const Router router = at_rank(p.router, 1, 2);
    const auto layer = problem.layer(router);
    expect_rows_independent(p.tokens, [&](int begin, int count) {
      Arena arena = make_arena();
      const Tensor out = layer(problem.route(router, arena, begin, count), begin, count, arena);
      RowBytes rows;
      for (int r = 0; r < count; ++r) rows.push_back(row_bytes(out, r));
      return rows;
    });
  }
}

}  // namespace
}  // namespace skiff::suite
