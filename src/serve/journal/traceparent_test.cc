#include "serve/journal/traceparent.h"

#include <gtest/gtest.h>

namespace skiff::journal {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";

TEST(Traceparent, ReadsTheRecommendationsExample) {
  const auto parent = parse_traceparent("00-" + kTrace + "-" + kSpan + "-01");
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->span_id, kSpan);
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-00")->sampled);
  EXPECT_TRUE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-0b")->sampled);
  EXPECT_TRUE(parse_traceparent("cc-" + kTrace + "-" + kSpan + "-01-what-comes-later"));
}

TEST(Traceparent, IgnoresOthers) {
  for (const std::string& bad :
       {std::string(), "00-" + kTrace + "-" + kSpan, "00-" + kTrace + "-" + kSpan + "-01-more",
        "ff-" + kTrace + "-" + kSpan + "-01", "00-" + std::string(32, '0') + "-" + kSpan + "-01",
        "00-" + kTrace + "-" + std::string(16, '0') + "-01", "00_" + kTrace + "-" + kSpan + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01",
        "00-" + kTrace + "-" + kSpan + "-0g", "cc-" + kTrace + "-" + kSpan + "-01x"})
    EXPECT_FALSE(parse_traceparent(bad)) << bad;
}

}  // namespace
}  // namespace skiff::journal
