#include "base/log.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(Log, UserTextCannotForgeLines) {
  EXPECT_EQ(escaped("a\nb\x1b[31m\xff\u4e2d"), "a\\x0ab\\x1b[31m\\xff\u4e2d");
  EXPECT_EQ(escaped("\u0085\u061c\u202e\u2066\u2028\ufeff"),
            "\\xc2\\x85\\xd8\\x9c\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
  EXPECT_EQ(escaped("\u00a0\u2019\u2027\u20ac"), "\u00a0\u2019\u2027\u20ac");
  EXPECT_EQ(escaped("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace skiff
