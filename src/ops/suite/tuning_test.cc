// Another Ops can adopt the algorithms that one Ops chose by measuring, as ranks of one group do.
#include <cstring>

#include "ops/suite/suite.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

struct Shape {
  int rows, in, out;
  DType out_type;
};
// A router of many rows, a projection, a head: products by cuBLASLt.
constexpr Shape kShapes[] = {{130, 2560, 64, kF32},
                             {32, 1024, 1536, kBF16},
                             {300, 512, 1000, kF32},
                             {64, 2048, 2048, kBF16},
                             {20, 768, 4096, kBF16}};

class Products {
 public:
  Products(Ops& ops, Workspace& ws) : ops_(ops) {
    for (const Shape& s : kShapes) {
      Linear plain;
      plain.weight = ws.random(kBF16, {s.out, s.in}, 0.05);
      weights_.push_back(ops.prepare(plain, {kBF16}, &owners_.emplace_back()));
      x_.push_back(ws.random(kBF16, {s.rows, s.in}));
      out_.push_back(ws.output(s.out_type, {s.rows, s.out}));
    }
  }
  void rehearse() {
    for (int i = 0; i < 24; ++i) ops_.rehearse([this] { run(); });
  }
  std::vector<std::byte> results() {
    run();
    ops_.wait(ops_.mark());
    std::vector<std::byte> all;
    for (const Tensor& t : out_) {
      const std::vector<std::byte> more = all_bytes(t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

 private:
  void run() {
    for (size_t i = 0; i < weights_.size(); ++i) ops_.linear(out_[i], x_[i], weights_[i]);
  }
  Ops& ops_;
  std::deque<Buffer> owners_;
  std::vector<Linear> weights_;
  std::vector<Tensor> x_, out_;
};

TEST(OpTuning, OfADeviceServesAnother) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no device to tune";
  const auto first = make_cuda_ops({}), second = make_cuda_ops({}), third = make_cuda_ops({});
  Workspace ws_first(1), ws_second(1);  // the same weights and inputs
  Products a(*first, ws_first), b(*second, ws_second);
  const size_t nothing = first->tuning().size();
  a.rehearse();
  const std::vector<std::byte> tuning = first->tuning();
  ASSERT_GT(tuning.size(), nothing) << "nothing was measured";
  ASSERT_TRUE(second->adopt_tuning(tuning));
  EXPECT_EQ(second->tuning(), tuning);
  EXPECT_EQ(b.results(), a.results());
  b.rehearse();
  EXPECT_EQ(second->tuning(), tuning) << "what was adopted is measured again";
  EXPECT_EQ(b.results(), a.results());

  std::vector<std::byte> foreign = tuning;
  foreign[8] ^= std::byte{1};  // cuBLASLt's version
  EXPECT_FALSE(third->adopt_tuning(foreign));
  EXPECT_FALSE(third->adopt_tuning(std::span(tuning).first(tuning.size() - 8)));
  EXPECT_EQ(third->tuning().size(), nothing);
}

// Products of row counts that were not measured use the algorithm of more rows, or an untried one.
// Both results add the same 256 products in f32, in some order: each is off by at most
// (256 + 2) * 2^-24 of the sum of their sizes, which is at most 256 * 0.05.
TEST(OpTuning, LeavesProductsOfAnyNumberOfRowsRight) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no device to tune";
  constexpr int kRows = 1400, kTuned = 600, kIn = 256, kOut = 640;
  constexpr double kBound = 2 * (kIn + 2) * 0x1p-24 * kIn * 0.05;
  const auto tuned = make_cuda_ops({}), untuned = make_cuda_ops({});
  Workspace ws(3);
  Linear w;
  w.weight = ws.random(kBF16, {kOut, kIn}, 0.05);
  Buffer one, two;
  const Linear ready = tuned->prepare(w, {kBF16}, &one), other = untuned->prepare(w, {kBF16}, &two);
  const Tensor x = ws.random(kBF16, {kRows, kIn});
  const Tensor got = ws.output(kF32, {kRows, kOut}), want = ws.output(kF32, {kRows, kOut});
  for (int i = 0; i < 20; ++i) {
    tuned->rehearse(
        [&] { tuned->linear(got.row_range(0, kTuned), x.row_range(0, kTuned), ready); });
  }
  untuned->linear(want, x, other);
  untuned->wait(untuned->mark());
  for (const int rows : {1, 8, 17, 65, 256, 257, 300, 599, 600, 601, 857, 1200, 1201, kRows}) {
    std::memset(got.data, 0xff, size_t{kRows} * kOut * sizeof(float));
    tuned->linear(got.row_range(0, rows), x.row_range(0, rows), ready);
    tuned->wait(tuned->mark());
    int wrong = 0;
    for (int i = 0; i < rows * kOut; ++i)
      wrong += !(std::abs(double{got.as<float>()[i]} - double{want.as<float>()[i]}) <= kBound);
    EXPECT_EQ(wrong, 0) << rows << " rows";
  }
}

TEST(OpTuning, HostsMeasureNothing) {
  const auto ops = make_reference_ops();
  EXPECT_TRUE(ops->tuning().empty());
  EXPECT_TRUE(ops->adopt_tuning({}));
  EXPECT_FALSE(ops->adopt_tuning(std::vector<std::byte>(8)));
}

}  // namespace
}  // namespace skiff::suite
