#include "apps/parallel_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

int replicas(const Words& words) { return replicas_of(Args(kServe, words)); }

std::string refusal(const Words& words) {
  try {
    replicas(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ParallelFlags, ReplicasAreCounted) {
  EXPECT_EQ(replicas({}), 1);
  EXPECT_EQ(replicas({"--data-parallel-size", "4"}), 4);
  EXPECT_EQ(replicas({"--data_parallel_size=2"}), 2);
  EXPECT_EQ(replicas({"-dp", "2"}), 2);
  EXPECT_EQ(replicas({"-dp", "2", "-tp", "4"}), 2) << "of four ranks each";
  EXPECT_EQ(replicas({"-dp", "2", "-ep"}), 2) << "which share the experts";
  EXPECT_THAT(refusal({"--data-parallel-size", "0"}), HasSubstr("--data-parallel-size"));
  EXPECT_EQ(replicas_of(Args(kBench, Words{"-dp", "3"})), 3);
}

}  // namespace
}  // namespace skiff::apps
