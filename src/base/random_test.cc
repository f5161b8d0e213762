#include "base/random.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

// The first numbers that the authors' own generator gives for this state.
TEST(Random, SplitMix64GivesThePublishedNumbers) {
  uint64_t state = 1234567;
  EXPECT_EQ(splitmix64(state), 6457827717110365317u);
  EXPECT_EQ(splitmix64(state), 3203168211198807973u);
  EXPECT_EQ(splitmix64(state), 9817491932198370423u);
  EXPECT_EQ(splitmix64(state), 4593380528125082431u);
  EXPECT_EQ(splitmix64(state), 16408922859458223821u);
}

TEST(Random, SeedsDiffer) { EXPECT_NE(random_seed(), random_seed()); }

}  // namespace
}  // namespace skiff
