#include "serve/control/pause_query.h"

#include <gtest/gtest.h>

namespace skiff::control {
namespace {

PauseQuery read(std::string_view query) {
  const auto read = read_pause_query(query);
  EXPECT_TRUE(read) << query;
  return read ? *read : PauseQuery{};
}

std::string refused(std::string_view query) {
  const auto read = read_pause_query(query);
  return read ? "none" : read.error().field;
}

TEST(PauseQuery, RequestsEndAtOnceUnlessTheyMayFinish) {
  EXPECT_FALSE(read("").ending.waits);
  EXPECT_FALSE(read("mode=abort&timeout=3").ending.waits);
  EXPECT_FALSE(read("wait_for_inflight_requests=false").ending.waits);
  EXPECT_TRUE(read("mode=wait").ending.waits);
  EXPECT_TRUE(read("wait_for_inflight_requests=true").ending.waits);
  EXPECT_EQ(read("mode=wait").ending.seconds, 60);
  EXPECT_EQ(read("mode=wait&timeout=0.5").ending.seconds, 0.5);
}

TEST(PauseQuery, ThePrefixCacheStaysUnlessItIsToBeForgotten) {
  EXPECT_FALSE(read("").forgets);
  EXPECT_FALSE(read("clear_cache=false").forgets);
  EXPECT_TRUE(read("mode=wait&clear_cache=true").forgets);
}

TEST(PauseQuery, WhatIsWrongIsNamed) {
  EXPECT_EQ(refused("mode=keep"), "mode");
  EXPECT_EQ(refused("mode=hold"), "mode");
  EXPECT_EQ(refused("mode=%zz"), "mode");
  EXPECT_EQ(refused("wait_for_inflight_requests=maybe"), "wait_for_inflight_requests");
  EXPECT_EQ(refused("timeout=-1"), "timeout");
  EXPECT_EQ(refused("level=1"), "level");
}

}  // namespace
}  // namespace skiff::control
