// The operations of a mixture's layer, from one norm to the next, without waits in between. A
// device may compute several of them by one kernel (ops/cuda/moe/deferred.h): all results must be,
// bit for bit, those of the same operations with a wait behind each, which other cases judge one by
// one.
#include <algorithm>
#include <array>
#include <tuple>

#include "ops/suite/formats.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr int kRounds = 4;

struct JoinedCase {
  int rows, hidden, width;
  Router router;
  bool shared = false;      // a shared expert's output is added
  bool first_delta = true;  // the first norm has a delta
  DType act = kBF16;
};
void PrintTo(const JoinedCase& c, std::ostream* to) { *to << c.rows << " rows"; }

using JoinedParam = std::tuple<Backend, JoinedCase>;
class OpsJoined : public testing::TestWithParam<JoinedParam> {};

class MixtureLayer {
 public:
  MixtureLayer(Ops& ops, const JoinedCase& c)
      : ops_(ops),
        c_(c),
        ws_(static_cast<uint64_t>(c.rows + c.hidden)),
        inputs_(Buffer(ops.device(), 64 << 20)),
        memory_(Buffer(ops.device(), 64 << 20)) {
    for (Norm& norm : norms_) {
      norm.weight = upload(ws_.random(kF32, {c.hidden})).reshaped({c.hidden});
      norm.eps = 1e-6f;
    }
    const int64_t experts = c.router.total(), h = c.hidden, w = c.width;
    router_ = prepared({c.router.experts, h}, 0, kF32);
    gate_up_ = prepared({experts, 2 * w, h}, experts, c.act);
    down_ = prepared({experts, h, w}, experts, c.act);
    if (c.router.bias)
      bias_ = upload(ws_.random(kF32, {c.router.experts}, 0.05)).reshaped({c.router.experts});
    residual_ = inputs_.take(kF32, {c.rows, h});
    x_ = inputs_.take(c.act, {c.rows, h});
    for (Start& start : starts_) {
      start.residual = upload(ws_.random(kF32, {c.rows, h}, 2));
      start.delta = upload(ws_.random(c.act, {c.rows, h}));
      start.shared = upload(ws_.random(c.act, {c.rows, h}));
    }
  }

  // Returns the results of one round, each operation waited for or none.
  std::vector<std::byte> run(int round, bool waits) {
    const auto step = [&] {
      if (waits) ops_.wait(ops_.mark());
    };
    const Start& start = starts_[static_cast<size_t>(round) % starts_.size()];
    memory_.reset();
    // What follows a norm may lie where its delta lay, as in a decoder.
    const Tensor delta = memory_.take(c_.act, {c_.rows, c_.hidden});
    if (round % 2 == 0) memory_.reset();
    const Tensor score = memory_.take(kF32, {c_.rows, c_.router.experts});
    const Tensor out = memory_.take(c_.act, {c_.rows, c_.hidden});
    const Tensor next = memory_.take(c_.act, {c_.rows, c_.hidden});
    ops_.copy(residual_, start.residual), step();
    ops_.copy(delta, start.delta), step();
    ops_.add_norm(x_, residual_, c_.first_delta ? delta : Tensor{}, norms_[0]), step();
    ops_.linear(score, x_, router_), step();
    const Routing routing = ops_.route(score, bias_, c_.router, memory_);
    step();
    ops_.experts(out, x_, routing, gate_up_, down_, Act::kSilu, memory_), step();
    if (c_.shared) ops_.add(out, start.shared), step();
    ops_.add_norm(next, residual_, out, norms_[1]), step();
    const int64_t copies =
        std::ranges::count_if(std::span(download(routing.expert).as<int32_t>(),
                                        static_cast<size_t>(routing.expert.elements())),
                              [](int32_t e) { return e >= 0; });
    std::vector<std::byte> all;
    for (const Tensor& t :
         {score, routing.expert, routing.weight, routing.order.row_range(0, copies),
          routing.expert_start, x_, out, residual_, next}) {
      const std::vector<std::byte> bytes = all_bytes(download(t));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  struct Start {
    Tensor residual, delta, shared;
  };

  Linear prepared(std::initializer_list<int64_t> shape, int64_t experts, DType keep) {
    Linear plain;
    plain.weight = ws_.random(kBF16, shape, 1 / std::sqrt(static_cast<double>(*(shape.end() - 1))));
    plain.experts = experts;
    return ops_.prepare(plain, {keep}, &owners_.emplace_back());
  }
  Tensor upload(const Tensor& host) {
    Tensor t = inputs_.take(host.dtype, {host.rows(), host.cols()});
    ops_.copy(t, host);
    ops_.wait(ops_.mark());
    return t;
  }
  Tensor download(const Tensor& t) {
    const Tensor host = ws_.output(t.dtype, {t.rows(), t.cols()});
    if (t.elements() > 0) ops_.copy(host, t);
    ops_.wait(ops_.mark());
    return host;
  }

  Ops& ops_;
  const JoinedCase c_;
  Workspace ws_;
  Arena inputs_, memory_;
  std::deque<Buffer> owners_;
  std::array<Norm, 2> norms_;
  Linear router_, gate_up_, down_;
  Tensor bias_, residual_, x_;
  std::array<Start, 3> starts_;  // what rows begin with, in turn, so that old values show
};

const JoinedCase kCases[] = {
    {1, 2560, 64, {.experts = 64, .top_k = 6, .bias = true, .always = 2}},
    {1, 512, 64, {.experts = 9, .top_k = 2}, true},
    {1, 4096, 64, {.experts = 16, .top_k = 4, .score = Router::kSigmoid}, false, false},
    {1, 4104, 64, {.experts = 8, .top_k = 2}, true},  // longer than what is normed with the choice
    {1, 8192, 64, {.experts = 8, .top_k = 2}},
    {3, 6152, 64, {.experts = 8, .top_k = 3}, true},
    {2, 1024, 64, {.experts = 16, .top_k = 11}, true, true, kF32},
    {1, 520, 64, {.experts = 130, .top_k = 8, .always = 1}},
    {2, 1032, 64, {.experts = 40, .top_k = 3, .bias = true}, true},
    {3, 768, 72, {.experts = 264, .top_k = 6}},
    {3, 256, 64, {.experts = 300, .top_k = 6}},  // more experts than blocks that norm
    {4, 2048, 64, {.experts = 64, .top_k = 8, .renorm = false}},
    {4, 256, 64, {.experts = 128, .top_k = 70}},  // more copies than are sorted with it
    {5, 512, 64, {.experts = 16, .top_k = 2}, true},
    {33, 512, 64, {.experts = 8, .top_k = 2, .always = 1}, true},
    {257, 256, 64, {.experts = 4, .top_k = 2}, true},
    {200,
     512,
     64,
     {.experts = 64,
      .top_k = 8,
      .score = Router::kSigmoid,
      .groups = {8, 4, ExpertGroups::kTwoBest},
      .bias = true},
     true},
    {129, 768, 64, {.experts = 40, .top_k = 6, .before = 9, .behind = 14}},
    {600, 256, 64, {.experts = 16, .top_k = 8}},  // more copies than are sorted by their gather
    {2, 256, 64, {.experts = 8, .top_k = 2}, true, true, kF32},
    {3, 100, 60, {.experts = 8, .top_k = 2}, true},
};

TEST_P(OpsJoined, ResultsAreThoseOfOperationsApart) {
  const auto& [backend, c] = GetParam();
  const std::unique_ptr<Ops> ops = backend.make();
  if (ops->device() == Device{} && int64_t{c.hidden} * c.width * c.router.total() > 4'000'000)
    GTEST_SKIP() << "so large for the sake of a device's kernels";
  MixtureLayer layer(*ops, c);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<std::byte> apart = layer.run(round, true);
    layer.run(round + 1, false);  // leaves other values everywhere
    ASSERT_EQ(layer.run(round, false), apart) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsJoined,
                         testing::Combine(testing::ValuesIn(unwaited_backends()),
                                          testing::ValuesIn(kCases)),
                         [](const auto& info) {
                           const JoinedCase& c = std::get<JoinedCase>(info.param);
                           return fmt::format("{}_rows{}_hidden{}_experts{}",
                                              std::get<Backend>(info.param).name, c.rows, c.hidden,
                                              c.router.experts);
                         });

}  // namespace
}  // namespace skiff::suite
