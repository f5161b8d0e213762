#include "engine/stats_board.h"

#include <gtest/gtest.h>

#include <thread>

namespace skiff::engine {
namespace {

TEST(StatsBoard, WhatWaitsForAnEngineAtRestIsNoHang) {
  StatsBoard board;
  const auto quiet = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return board.read().seconds_since_progress;
  };
  EXPECT_EQ(quiet(), 0) << "there is nothing to do";
  board.begin_work();
  EXPECT_GT(quiet(), 0.001);
  board.rest(true);
  EXPECT_EQ(quiet(), 0);
  board.rest(false);
  EXPECT_GT(quiet(), 0.001);
  board.end_work();
  EXPECT_EQ(quiet(), 0);
}

}  // namespace
}  // namespace skiff::engine
