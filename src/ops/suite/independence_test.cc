// A row's bits must not depend on the other rows where batch_invariant() says so: products of so
// many rows that a device takes another kernel for them. The smaller cases stand with each
// operation.
#include "base/load_error.h"
#include "ops/suite/suite.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

struct Sizes {
  int rows;
  int64_t in, out;
};

// Whether each operation runs several times over, which takes minutes with so many rows.
bool is_in_service() { return OpSuite::GetParam().name.ends_with("_in_service"); }

Linear make_weight(Workspace& ws, Ops& ops, const Sizes& s, DType stored, bool bias,
                   Buffer* owner) {
  Linear plain;
  plain.weight = ws.random(stored, {s.out, s.in});
  if (bias) plain.bias = ws.random(DType::kF32, {s.out});
  return ops.prepare(plain, {stored}, owner);
}

// Weights that the CUDA backend multiplies in one chain, by cuBLASLt; that it cuts, in several
// calls or in tiles of 128 or 256 rows; rows that cannot be read in vectors.
constexpr Sizes kSizes[] = {{300, 512, 136},    {600, 520, 1500}, {300, 512, 12800},
                            {257, 1032, 64},    {300, 3208, 136}, {600, 3200, 1500},
                            {1024, 3208, 4096}, {260, 100, 130}};

TEST_P(OpSuite, ManyRowsOfProductsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  for (const Sizes& s : kSizes) {
    if (ops->device() == Device{} && s.out > 200) continue;
    for (const DType type : {DType::kBF16, DType::kF32}) {
      Workspace ws(5);
      Buffer owner;
      const bool bias = type == DType::kBF16;
      const Linear w = make_weight(ws, *ops, s, DType::kBF16, bias, &owner);
      const Tensor x = ws.random(DType::kBF16, {s.rows, s.in});
      const Tensor out = ws.output(type, {s.rows, s.out});
      expect_ranges_alike(out, [&](int begin, int count) {
        ops->linear(out.row_range(begin, count), x.row_range(begin, count), w);
      });
    }
  }
}

TEST_P(OpSuite, ManyRowsOfGatedProductsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  Arena arena(Buffer::pinned(size_t{16} << 20));
  for (const Sizes& s : kSizes) {
    if (ops->device() == Device{} && s.out > 200) continue;
    Workspace ws(6);
    Buffer owner;
    const Linear w =
        make_weight(ws, *ops, {s.rows, s.in, 2 * (s.out / 2)}, DType::kBF16, false, &owner);
    const Tensor x = ws.random(DType::kBF16, {s.rows, s.in});
    const Tensor out = ws.output(DType::kBF16, {s.rows, s.out / 2});
    expect_ranges_alike(out, [&](int begin, int count) {
      arena.reset();
      ops->gated_linear(out.row_range(begin, count), x.row_range(begin, count), w, Act::kSilu,
                        arena);
    });
  }
}

// A router's weights are kept in float32.
TEST_P(OpSuite, ManyRowsByFloatWeightsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (is_in_service()) GTEST_SKIP() << "the other instance has the same kernels";
  for (const Sizes& s : {Sizes{300, 256, 24}, Sizes{1100, 520, 66}, Sizes{300, 250, 24}}) {
    if (ops->device() == Device{} && s.rows > 300) continue;
    Workspace ws(7);
    Buffer owner;
    const Linear w = make_weight(ws, *ops, s, DType::kF32, true, &owner);
    const Tensor x = ws.random(DType::kBF16, {s.rows, s.in});
    const Tensor out = ws.output(DType::kF32, {s.rows, s.out});
    expect_ranges_alike(out, [&](int begin, int count) {
      ops->linear(out.row_range(begin, count), x.row_range(begin, count), w);
    });
  }
}

// Cached blocks of the two modes must not be mixed (engine/fingerprint.h).
TEST(CudaInvariance, HasAnArithmeticOfItsOwn) {
  std::unique_ptr<Ops> ops;
  try {
    ops = make_cuda_ops({.batch_invariant = true});
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no batch-invariant device: " << e.what();
  }
  EXPECT_TRUE(ops->batch_invariant());
  const auto normal = make_cuda_ops({});
  EXPECT_FALSE(normal->batch_invariant());
  EXPECT_NE(ops->arithmetic(), normal->arithmetic());
}

TEST(CudaInvariance, IsRefusedWithoutHopper) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_THROW(make_cuda_ops({.portable = true, .batch_invariant = true}), LoadError);
}

}  // namespace
}  // namespace skiff::suite
