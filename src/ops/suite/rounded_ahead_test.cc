// linear behind the operation that made its input: a device may round rows where they are made, and
// must notice when they have changed since.
#include "ops/suite/formats.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF8 = DType::kF8E4M3;
constexpr int kIn = 512, kOut = 144;

WeightFormat float8_by_tokens() {
  return {
      .dtype = kF8, .block_out = 1, .scale = kF32, .input = InputFormat{kF8, InputFormat::kToken}};
}

// Rows that a product rounds itself, that fit one of its jobs, and for a library.
constexpr int kRows[] = {3, 5, 40, 130};

class RoundedAhead {
 public:
  RoundedAhead(Ops& ops, int rows) : ops_(ops), rows_(rows), ws(static_cast<uint64_t>(rows)) {
    w = ops.prepare(random_weight(ws, float8_by_tokens(), {.out = kOut, .in = kIn}),
                    float8_by_tokens(), &owner_);
    x = ws.random(kBF16, {rows, kIn});
  }

  // The product of x, which the operation before has made, and that of a copy of x, which was
  // there before.
  void expect_same_as_of_a_copy(const Tensor& product) {
    const Tensor same = ws.output(kBF16, {rows_, kIn}), other = output();
    ops_.copy(same, x);
    ops_.add(scrap, scrap);
    ops_.linear(other, same, w);
    ops_.wait(ops_.mark());
    EXPECT_EQ(all_bytes(product), all_bytes(other)) << rows_ << " rows";
  }
  Tensor output() { return ws.output(kBF16, {rows_, kOut}); }

 private:
  Ops& ops_;
  const int rows_;
  Buffer owner_;

 public:
  Workspace ws;
  Linear w;
  Tensor x, scrap = ws.random(kBF16, {1, 64});
};

TEST_P(OpSuite, ProductsBehindANorm) {
  if (!ops->multiplies(float8_by_tokens())) GTEST_SKIP() << "not multiplied here";
  for (const int rows : kRows) {
    RoundedAhead test(*ops, rows);
    const Tensor residual = test.ws.random(kF32, {rows, kIn}),
                 delta = test.ws.random(kBF16, {rows, kIn});
    const Norm norm = {.weight = test.ws.random(kF32, {kIn})};
    const Tensor behind = test.output(), later = test.output();
    ops->add_norm(test.x, residual, delta, norm);
    ops->linear(behind, test.x, test.w);
    test.expect_same_as_of_a_copy(behind);
    ops->add_norm(test.x, residual, delta, norm);
    ops->add(test.x, delta);  // What was rounded is no more.
    ops->linear(later, test.x, test.w);
    test.expect_same_as_of_a_copy(later);
  }
}

TEST_P(OpSuite, ProductsBehindAGate) {
  if (!ops->multiplies(float8_by_tokens())) GTEST_SKIP() << "not multiplied here";
  for (const int rows : kRows) {
    RoundedAhead test(*ops, rows);
    Buffer owner;
    const Linear gate_up = ops->prepare(
        random_weight(test.ws, float8_by_tokens(), {.out = int64_t{2} * kIn, .in = 128}),
        float8_by_tokens(), &owner);
    const Tensor in = test.ws.random(kBF16, {rows, 128}, 0.2), behind = test.output();
    Arena arena(Buffer::pinned(size_t{1} << 20));
    ops->gated_linear(test.x, in, gate_up, Act::kSilu, arena);
    ops->linear(behind, test.x, test.w);
    test.expect_same_as_of_a_copy(behind);
  }
}

}  // namespace
}  // namespace skiff::suite
