#include "base/nearest.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(Nearest, DistanceAndLimit) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
  EXPECT_EQ(nearest("prot", {"host", "port", "prompt"}), "port");
  EXPECT_EQ(nearest("zzzzzz", {"host", "port"}), "");
}

}  // namespace
}  // namespace skiff
