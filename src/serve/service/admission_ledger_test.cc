#include "serve/service/admission_ledger.h"

#include <gtest/gtest.h>

namespace skiff::service {
namespace {

using Time = AdmissionLedger::Time;

Time at(double seconds) {
  return Time{} +
         std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
}

TEST(AdmissionLedger, TheFirstToWaitAlwaysMay) {
  AdmissionLedger book({.waiting_tokens = 100});
  EXPECT_TRUE(book.has_room(1000));
  book.opened(at(0));
  book.waits(at(0), 60);
  EXPECT_TRUE(book.has_room(40));
  EXPECT_FALSE(book.has_room(41));
  EXPECT_FALSE(book.is_full());
  book.waits(at(0), 40);
  EXPECT_TRUE(book.is_full());
  book.admitted(at(1), 60);
  EXPECT_EQ(book.waiting_tokens(), 40);
  EXPECT_TRUE(book.has_room(60));
  book.gave_up(at(1), 40);
  EXPECT_EQ(book.waiting(), 0);
  EXPECT_TRUE(book.has_room(1000));
}

TEST(AdmissionLedger, WithoutABoundThereIsAlwaysRoom) {
  AdmissionLedger book({});
  book.waits(at(0), int64_t{1} << 40);
  EXPECT_TRUE(book.has_room(int64_t{1} << 40));
  EXPECT_FALSE(book.is_full());
}

// 100 tokens a second leave the queue; 1,000 wait, so ten seconds.
TEST(AdmissionLedger, RetryAfterFollowsTheMeasuredRate) {
  AdmissionLedger book({.waiting_tokens = 1});
  for (int i = 0; i < 20; ++i) book.waits(at(0), 100);
  for (int i = 1; i <= 10; ++i) book.admitted(at(i), 100);
  EXPECT_NEAR(book.retry_seconds(at(10)), 10, 1);
  // A rate ten times as high dominates within the fading time of older ones.
  for (int i = 0; i < 500; ++i) book.waits(at(10), 100);
  for (int i = 1; i <= 500; ++i) book.admitted(at(10 + 0.1 * i), 100);
  EXPECT_EQ(book.retry_seconds(at(60)), 2);
}

TEST(AdmissionLedger, RetryAfterStaysBetweenASecondAndAMinute) {
  AdmissionLedger book({});
  EXPECT_EQ(book.retry_seconds(at(0)), 1);
  for (int i = 0; i < 1000; ++i) book.waits(at(0), 1000);
  EXPECT_EQ(book.retry_seconds(at(0)), 1);  // nothing is known yet
  EXPECT_EQ(book.retry_seconds(at(20)),
            15);  // the time without progress, faded: 30 (1 - 1/e^(2/3))
  book.admitted(at(20), 1000);
  EXPECT_EQ(book.retry_seconds(at(20)), 60);
}

TEST(AdmissionLedger, IdleTimeSaysNothingOfTheRate) {
  AdmissionLedger book({});
  book.waits(at(0), 100);
  book.admitted(at(1), 100);
  for (int i = 0; i < 20; ++i) book.waits(at(5000), 100);
  EXPECT_NEAR(book.retry_seconds(at(5000)), 20, 1);
}

// Nothing waits, but concurrency is exhausted: the time until a request ends counts.
TEST(AdmissionLedger, WithoutAQueueTheEndsOfRequestsCount) {
  AdmissionLedger book({});
  for (int i = 0; i < 4; ++i) {
    book.opened(at(0));
    book.waits(at(0), 10);
    book.admitted(at(0), 10);
  }
  book.closed(at(12));
  EXPECT_NEAR(book.retry_seconds(at(12)), 12, 2);
}

}  // namespace
}  // namespace skiff::service
