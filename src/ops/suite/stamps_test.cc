// The backend's clock.
#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

TEST_P(OpSuite, StampsTellTheTimeOfWhatLiesBetween) {
  constexpr int64_t kRows = 64, kCols = 1 << 18;
  const Buffer from(ops->device(), kRows * kCols * 4), to(ops->device(), kRows * kCols * 4);
  const Tensor x = from.view(DType::kF32, {kRows, kCols}), y = to.view(DType::kF32, {kRows, kCols});
  ops->bind_thread();
  ops->copy(y, x);
  finish();
  const uint64_t begin = ops->stamp();
  const uint64_t same = ops->stamp();
  ops->copy(y, x);
  const uint64_t middle = ops->stamp();
  for (int i = 0; i < 4; ++i) ops->copy(x, y);
  const uint64_t end = ops->stamp();
  finish();
  const double one = ops->seconds_between(same, middle), four = ops->seconds_between(middle, end);
  EXPECT_GT(one, kRows * kCols * 8 / 20e12) << "no memory copies 64 MiB that fast";
  EXPECT_LT(one, 60);
  EXPECT_GT(four, 0);
  EXPECT_NEAR(ops->seconds_between(begin, end), ops->seconds_between(begin, same) + one + four,
              1e-3 * (one + four) + 1e-5);
  EXPECT_EQ(ops->seconds_between(end, end), 0);
}

TEST_P(OpSuite, TheLastSixteenStampsAreKept) {
  const uint64_t first = ops->stamp();
  for (int i = 0; i < 14; ++i) ops->stamp();
  const uint64_t last = ops->stamp();
  finish();
  EXPECT_GE(ops->seconds_between(first, last), 0);
}

}  // namespace
}  // namespace skiff::suite
