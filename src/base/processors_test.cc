#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <map>

namespace skiff {
namespace {

double granted(const std::map<std::string, std::string>& files) {
  return cgroup_processors([&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Processors, Version2TakesTheLeastQuotaOnTheWayUp) {
  const std::string self = "0::/a/b\n", root = "/sys/fs/cgroup";
  EXPECT_EQ(granted({{"/proc/self/cgroup", self}}), HUGE_VAL);
  EXPECT_EQ(granted({{"/proc/self/cgroup", self}, {root + "/a/b/cpu.max", "max 100000\n"}}),
            HUGE_VAL);
  EXPECT_EQ(granted({{"/proc/self/cgroup", self}, {root + "/a/b/cpu.max", "150000 100000\n"}}),
            1.5);
  EXPECT_EQ(granted({{"/proc/self/cgroup", self},
                     {root + "/a/b/cpu.max", "400000 100000\n"},
                     {root + "/a/cpu.max", "50000 50000\n"},
                     {root + "/cpu.max", "max 100000\n"}}),
            1);
  EXPECT_EQ(granted({{"/proc/self/cgroup", "0::/\n"}, {root + "/cpu.max", "200000 100000\n"}}), 2);
}

// Inside a container the path may be the host's, while the container's group is the mount.
TEST(Processors, APathThatIsNotThereMeansTheMount) {
  EXPECT_EQ(granted({{"/proc/self/cgroup", "0::/docker/abc\n"},
                     {"/sys/fs/cgroup/cpu.max", "300000 100000\n"}}),
            3);
}

TEST(Processors, Version1) {
  const std::string self = "5:memory:/m\n4:cpu,cpuacct:/a/b\n3:cpuset:/c\n0::/u\n";
  const std::string joint = "/sys/fs/cgroup/cpu,cpuacct", alone = "/sys/fs/cgroup/cpu";
  EXPECT_EQ(granted({{"/proc/self/cgroup", self},
                     {joint + "/a/b/cpu.cfs_quota_us", "-1\n"},
                     {joint + "/a/b/cpu.cfs_period_us", "100000\n"}}),
            HUGE_VAL);
  EXPECT_EQ(granted({{"/proc/self/cgroup", self},
                     {joint + "/a/cpu.cfs_quota_us", "25000\n"},
                     {joint + "/a/cpu.cfs_period_us", "100000\n"}}),
            0.25);
  EXPECT_EQ(granted({{"/proc/self/cgroup", self},
                     {alone + "/a/b/cpu.cfs_quota_us", "200000\n"},
                     {alone + "/a/b/cpu.cfs_period_us", "100000\n"}}),
            2);
  EXPECT_EQ(granted({{"/proc/self/cgroup", "3:cpuset:/c\n"},
                     {alone + "/c/cpu.cfs_quota_us", "200000\n"},
                     {alone + "/c/cpu.cfs_period_us", "100000\n"}}),
            HUGE_VAL)
      << "the group of another controller";
}

TEST(Processors, DamagedFilesGrantEverything) {
  for (const char* text : {"", "max", "x y", "-5 100000", "100000 0", "100000"})
    EXPECT_EQ(granted({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", text}}),
              HUGE_VAL)
        << text;
  for (const char* self : {"", "0", "0:", "::", "4:cpu", "\n\n"})
    EXPECT_EQ(granted({{"/proc/self/cgroup", self}}), HUGE_VAL) << self;
}

TEST(Processors, FollowTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(usable_processors(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_processors(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace skiff
