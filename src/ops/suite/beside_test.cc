// The products of a shared expert go aside, and alternate with the operations of its router, as in
// a decoder. A device may run them at the same time (ops/cuda/side_lane.h, ops/cuda/beside.h): all
// results must be, bit for bit, those of the same operations with a wait behind each.
#include <tuple>

#include "ops/suite/formats.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr int kHidden = 1536, kWidth = 512, kRounds = 12, kFewRows = 4;
constexpr Router kRouter = {.experts = 64, .top_k = 6, .score = Router::kSigmoid, .renorm = true};

using BesideParam = std::tuple<Backend, int>;
class OpsBeside : public testing::TestWithParam<BesideParam> {};

class SharedExpert {
 public:
  SharedExpert(Ops& ops, const WeightFormat& format, int rows)
      : ops_(ops),
        ws_(static_cast<uint64_t>(rows)),
        inputs_(Buffer(ops.device(), 16 << 20)),
        memory_(Buffer(ops.device(), 16 << 20)) {
    norm_.weight = upload(ws_.random(kF32, {kHidden})).reshaped({kHidden});
    norm_.eps = 1e-6f;
    Linear router;
    router.weight = ws_.random(kF32, {kRouter.experts, kHidden}, 0.03);
    router_ = prepared(router, {kF32});
    gate_up_ =
        prepared(random_weight(ws_, format, {.out = int64_t{2} * kWidth, .in = kHidden}), format);
    down_ = prepared(random_weight(ws_, format, {.out = kHidden, .in = kWidth}), format);
    residual_ = inputs_.take(kF32, {rows, kHidden});
    x_ = inputs_.take(kBF16, {rows, kHidden});
    for (Tensor& start : starts_) start = upload(ws_.random(kF32, {rows, kHidden}));
  }

  // Returns the results of one round, each operation waited for or none, with products aside or
  // not.
  std::vector<std::byte> run(int round, bool waits, bool asides = true) {
    asides_ = asides;
    const auto step = [&] {
      if (waits) ops_.wait(ops_.mark());
    };
    memory_.reset();
    const Tensor score = memory_.take(kF32, {x_.rows(), kRouter.experts});
    const Tensor shared = memory_.take(kBF16, {x_.rows(), kHidden});
    const Tensor middle = memory_.take(kBF16, {x_.rows(), kWidth});
    ops_.copy(residual_, starts_[static_cast<size_t>(round) % starts_.size()]), step();
    ops_.add_norm(x_, residual_, {}, norm_), step();
    aside([&] { ops_.gated_linear(middle, x_, gate_up_, Act::kSilu, memory_); }), step();
    ops_.linear(score, x_, router_), step();
    aside([&] { ops_.linear(shared, middle, down_); }), step();
    const Routing routing = ops_.route(score, {}, kRouter, memory_);
    ops_.join(), step();
    std::vector<std::byte> all;
    for (const Tensor& t : {score, shared, middle, routing.expert, routing.weight, routing.order,
                            routing.expert_start}) {
      const Tensor host = ws_.output(t.dtype, {t.rows(), t.cols()});
      ops_.copy(host, t);
      ops_.wait(ops_.mark());
      const std::vector<std::byte> bytes = all_bytes(host);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  template <class Work>
  void aside(Work work) {
    if (asides_) ops_.begin_aside();
    work();
    if (asides_) ops_.end_aside();
  }
  Linear prepared(const Linear& plain, const WeightFormat& keep) {
    return ops_.prepare(plain, keep, &owners_.emplace_back());
  }
  Tensor upload(const Tensor& host) {
    Tensor t = inputs_.take(host.dtype, {host.rows(), host.cols()});
    ops_.copy(t, host);
    ops_.wait(ops_.mark());
    return t;
  }

  Ops& ops_;
  bool asides_ = true;
  Workspace ws_;
  Arena inputs_, memory_;
  std::deque<Buffer> owners_;
  Norm norm_;
  Linear router_, gate_up_, down_;
  Tensor residual_, x_;
  std::array<Tensor, 3> starts_;  // what rows begin with, in turn, so that old values show
};

TEST_P(OpsBeside, ASharedExpertChangesNothing) {
  const auto& [backend, rows] = GetParam();
  const std::unique_ptr<Ops> ops = backend.make();
  int formats = 0;
  for (const WeightFormat& format :
       {WeightFormat{DType::kI8, 1, 0, kF32}, WeightFormat{DType::kI4, 1, 0, kF32},
        WeightFormat{DType::kI4, 1, 128, kBF16},
        WeightFormat{DType::kF8E4M3,
                     128,
                     128,
                     kF32,
                     {},
                     InputFormat{DType::kF8E4M3, InputFormat::kGroups}}}) {
    if (!ops->multiplies(format)) continue;
    SCOPED_TRACE(describe(format));
    ++formats;
    SharedExpert expert(*ops, format, rows);
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<std::byte> alone = expert.run(round, true);
      ASSERT_EQ(expert.run(round + 1, false).size(), alone.size());
      ASSERT_EQ(expert.run(round, false), alone) << "round " << round;
      // Products of more rows may be computed by other algorithms where they are not aside.
      if ((rows <= kFewRows || ops->batch_invariant()) && round < 3) {
        ASSERT_EQ(expert.run(round, false, false), alone) << "round " << round << ", not aside";
      }
    }
  }
  if (formats == 0) GTEST_SKIP() << "this backend multiplies none of the formats";
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsBeside,
                         testing::Combine(testing::ValuesIn(unwaited_backends()),
                                          testing::Values(1, 2, 4, 7, 33, 128)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_rows";
                         });

}  // namespace
}  // namespace skiff::suite
