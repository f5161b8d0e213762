#include "apps/heap_trim.h"

#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

using std::chrono::seconds;
constexpr int64_t kGiB = 1 << 30;
const TrimSchedule::Time kStart = std::chrono::steady_clock::now();

TEST(TrimSchedule, NothingIsDueWhileLittleIsHeld) {
  TrimSchedule schedule;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(schedule.is_due(kGiB + i * (TrimSchedule::kMuch / 100), kStart + seconds(i)));
}

TEST(TrimSchedule, WhatGrewIsTrimmedAndThenLeftAlone) {
  TrimSchedule schedule;
  EXPECT_FALSE(schedule.is_due(kGiB, kStart));
  EXPECT_TRUE(schedule.is_due(5 * kGiB, kStart + seconds(1)));
  schedule.trimmed(5 * kGiB, kGiB + 1000, kStart + seconds(1));
  for (int i = 2; i < 200; ++i) EXPECT_FALSE(schedule.is_due(kGiB + 1000, kStart + seconds(i)));
}

// Memory that is in use cannot be given back; trying costs time, so it is tried less and less
// often.
TEST(TrimSchedule, WhatDoesNotHelpIsTriedLessOften) {
  TrimSchedule schedule;
  schedule.is_due(kGiB, kStart);
  int trims = 0;
  for (int i = 1; i <= 600; ++i)
    if (schedule.is_due(5 * kGiB, kStart + seconds(i))) {
      ++trims;
      schedule.trimmed(5 * kGiB, 5 * kGiB, kStart + seconds(i));
    }
  EXPECT_GE(trims, 10);
  EXPECT_LE(trims, 16);
}

// The same memory is freed while the process seems to hold as much as before.
TEST(TrimSchedule, WhatIsFreedLaterComesBackWithinAMinute) {
  TrimSchedule schedule;
  schedule.is_due(kGiB, kStart);
  int last = 0;
  for (int i = 1; i <= 600; ++i)
    if (schedule.is_due(5 * kGiB, kStart + seconds(i))) {
      EXPECT_LE(i - last, 64);
      last = i;
      schedule.trimmed(5 * kGiB, 5 * kGiB, kStart + seconds(i));
    }
  EXPECT_GE(last, 536);
}

}  // namespace
}  // namespace skiff::apps
