#include "apps/notify.h"

#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

TEST(Notify, DatagramsArriveInOrder) {
  NotifyListener listener;
  EXPECT_EQ(listener.next(0), "");
  notify(listener.name(), "STATUS=loading");
  notify(listener.name(), "READY=1\nSTATUS=Serving x");
  EXPECT_EQ(listener.next(1000), "STATUS=loading");
  EXPECT_EQ(listener.next(1000), "READY=1\nSTATUS=Serving x");
  EXPECT_EQ(listener.next(0), "");
  notify("", "READY=1");
  notify("@nobody-listens-here", "READY=1");
  notify(std::string(500, 'x'), "READY=1");
}

TEST(Notify, ValuesAreFoundByName) {
  EXPECT_EQ(notified("READY=1\nSTATUS=a=b", "STATUS"), "a=b");
  EXPECT_EQ(notified("READY=1\nSTATUS=a", "READY"), "1");
  EXPECT_EQ(notified("READY", "READY"), "");
  EXPECT_EQ(notified("XREADY=1", "READY"), "");
  EXPECT_EQ(notified("", "READY"), "");
}

}  // namespace
}  // namespace skiff::apps
