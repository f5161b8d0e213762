#include "base/round_up.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace skiff {
namespace {

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up(10, 3), 12);
}

TEST(RoundUp, KeepsTheTypeOfTheNumber) {
  EXPECT_EQ(round_up(int64_t{1} << 40, 3), (int64_t{1} << 40) + 2);
  static_assert(std::is_same_v<decltype(round_up(uint64_t{1}, 4)), uint64_t>);
}

}  // namespace
}  // namespace skiff
