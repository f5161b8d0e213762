#include "ops/cuda/beside.h"

#include <gtest/gtest.h>

#include <array>

namespace skiff::cuda {
namespace {

class Beside : public testing::Test {
 protected:
  // Rows of 4 of the 16 floats of a row, from `begin` on.
  Tensor part(int64_t first_row, int64_t rows, int64_t begin) {
    return host_tensor(memory_.data(), DType::kF32, {8, 16})
        .row_range(first_row, rows)
        .col_range(begin, 4);
  }

  std::array<float, 128> memory_{};
};

TEST_F(Beside, TensorsOverlapWhereTheirRowsInterleave) {
  EXPECT_TRUE(overlap(part(0, 2, 0), part(1, 2, 0)));
  EXPECT_TRUE(overlap(part(0, 2, 0), part(0, 2, 8)));  // the gaps count
  EXPECT_FALSE(overlap(part(0, 2, 0), part(2, 2, 0)));
  EXPECT_FALSE(overlap(part(0, 1, 0), part(0, 1, 4)));
  EXPECT_FALSE(overlap(part(0, 0, 0), part(0, 1, 0)));
  EXPECT_FALSE(overlap({}, part(0, 1, 0)));
}

TEST_F(Beside, NothingRunsBesideWhatIsNotKnown) {
  LastProduct last;
  EXPECT_FALSE(last.allows({part(0, 1, 0)}, {part(1, 1, 0)}));
  last.remember(part(2, 1, 0), part(3, 1, 0));
  EXPECT_TRUE(last.allows({part(0, 1, 0)}, {part(1, 1, 0)}));
  last.forget();
  EXPECT_FALSE(last.allows({part(0, 1, 0)}, {part(1, 1, 0)}));
}

TEST_F(Beside, OperandsKeepApart) {
  const Tensor out = part(2, 1, 0), x = part(3, 1, 0), other = part(5, 1, 0);
  LastProduct last;
  last.remember(out, x);
  EXPECT_TRUE(last.allows({x, other}, {part(6, 1, 0)})) << "both may read the same rows";
  EXPECT_FALSE(last.allows({other, out}, {part(6, 1, 0)})) << "a result that is not there yet";
  EXPECT_FALSE(last.allows({other}, {part(6, 1, 0), out})) << "two results in one place";
  EXPECT_FALSE(last.allows({other}, {x})) << "rows that are still read";
}

}  // namespace
}  // namespace skiff::cuda
