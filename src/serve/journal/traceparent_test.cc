#include "serve/journal/traceparent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace skiff::journal {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";

// {0} stands for the trace's id, {1} for the span's.
std::optional<TraceParent> parsed(const char* pattern) {
  return parse_traceparent(fmt::format(fmt::runtime(pattern), kTrace, kSpan));
}

TEST(Traceparent, ReadsTheRecommendationsExample) {
  const auto parent = parsed("00-{0}-{1}-01");
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->span_id, kSpan);
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(parsed("00-{0}-{1}-00")->sampled);
  EXPECT_TRUE(parsed("00-{0}-{1}-0b")->sampled);
  EXPECT_TRUE(parsed("cc-{0}-{1}-01-what-comes-later"));
}

TEST(Traceparent, IgnoresOthers) {
  for (const char* bad :
       {"", "00-{0}-{1}", "00-{0}-{1}-01-more", "ff-{0}-{1}-01",
        "00-00000000000000000000000000000000-{1}-01", "00-{0}-0000000000000000-01", "00_{0}-{1}-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-{1}-01", "00-{0}-{1}-0g", "cc-{0}-{1}-01x"})
    EXPECT_FALSE(parsed(bad)) << bad;
}

}  // namespace
}  // namespace skiff::journal
