#include "apps/step_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/args.h"

namespace skiff::apps {
namespace {

using testing::ElementsAre;

std::vector<int> numbers(std::string_view list) { return numbers_in("rows", list, 8192); }

TEST(NumbersIn, ReadsNumbersAndRanges) {
  EXPECT_THAT(numbers("8"), ElementsAre(8));
  EXPECT_THAT(numbers("3..6"), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(numbers("1024,64..256:64,1,64"), ElementsAre(1, 64, 128, 192, 256, 1024));
  EXPECT_THAT(numbers("1..10:4"), ElementsAre(1, 5, 9)) << "the last need not be met";
  EXPECT_THAT(numbers("8192"), ElementsAre(8192));
}

TEST(NumbersIn, RefusesWhatIsNoList) {
  for (const char* list : {"", ",", "1,", "0", "-3", "x", "1..", "5..4", "1..8:0", "1..8:", "1-3",
                           "8193", "1..99999", "99999999999", "1 ,2", "1..8:2x"})
    EXPECT_THROW(numbers(list), UsageError) << list;
}

TEST(AboveLine, IsTheDistanceToTheBestNeighbours) {
  // A line of 1 ms for each 100 rows, with a cliff behind 1024 and a slope back to it.
  const std::vector<TimedRows> steps{
      {512, 5.12}, {768, 9.216}, {1024, 10.24}, {1032, 15.48}, {1536, 15.36}};
  const std::vector<double> above = above_line(steps);
  ASSERT_EQ(above.size(), steps.size());
  EXPECT_EQ(above[0], 0);
  EXPECT_NEAR(above[1], 0.2, 1e-9);
  EXPECT_NEAR(above[2], 0, 1e-9);
  EXPECT_NEAR(above[3], 0.5, 1e-9) << "the line runs from 1024 to 1536";
  EXPECT_EQ(above[4], 0);
}

TEST(AboveLine, IsZeroBelowTheLineAndWithoutNeighbours) {
  EXPECT_THAT(above_line({}), ElementsAre());
  EXPECT_THAT(above_line({{10, 1}}), ElementsAre(0));
  EXPECT_THAT(above_line({{10, 1}, {20, 1.1}, {30, 3}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(above_line({{1, 1}, {100, 50}, {1000, 60}}), ElementsAre(0, 0, 0))
      << "neighbours that far away say nothing";
}

}  // namespace
}  // namespace skiff::apps
