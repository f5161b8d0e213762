#include "ops/cuda/linear/row_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::cuda {
namespace {

using testing::ElementsAre;

TEST(RowCounts, LieInTheRange) {
  EXPECT_THAT(tuned_counts(0, 7), ElementsAre());
  EXPECT_THAT(tuned_counts(0, 31), ElementsAre(8, 16, 24));
  EXPECT_THAT(tuned_counts(64, 130), ElementsAre(80, 96, 112, 128));
  EXPECT_THAT(tuned_counts(256, 384), ElementsAre(288, 320, 352, 384));
  EXPECT_THAT(tuned_counts(256, 383), ElementsAre(288, 320, 352));
  EXPECT_THAT(tuned_counts(2304, 4096), ElementsAre(2560, 3072, 3584, 4096));
  EXPECT_THAT(tuned_counts(300, 300), ElementsAre());
}

TEST(RowCounts, LieCloseTogether) {
  const std::vector<int64_t> all = tuned_counts(0, 8192);
  EXPECT_EQ(all.front(), 8);
  EXPECT_EQ(all.back(), 8192);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GT(all[i], all[i - 1]);
    if (all[i] > 64) {
      EXPECT_LE(all[i] - all[i - 1], all[i - 1] / 4);
    }
  }
}

TEST(RowCounts, AddUpFromRangeToRange) {
  std::vector<int64_t> parts;
  for (const auto& [from, to] : {std::pair{0, 64}, {64, 500}, {500, 512}, {512, 70000}})
    for (const int64_t rows : tuned_counts(from, to)) parts.push_back(rows);
  EXPECT_EQ(parts, tuned_counts(0, 70000));
  EXPECT_EQ(parts.back(), 65536);
}

}  // namespace
}  // namespace skiff::cuda
