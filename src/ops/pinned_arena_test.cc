#include "ops/pinned_arena.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(PinnedArena, GivesBackWhatLaterRoundsDoNotUse) {
  PinnedArena arena;
  const auto round = [&](int64_t floats) {
    arena.take(DType::kF32, {16});
    arena.take(DType::kF32, {floats});
    arena.reset();
  };
  round(64 << 20 >> 2);
  EXPECT_GE(arena.held(), size_t{64} << 20);
  round(64 << 20 >> 2);
  for (int i = 0; i < 128; ++i) round(100);
  EXPECT_LE(arena.held(), size_t{1} << 20);
  const size_t kept = arena.held();
  for (int i = 0; i < 200; ++i) round(100);
  EXPECT_EQ(arena.held(), kept) << "what is used again and again stays";
}

}  // namespace
}  // namespace skiff
