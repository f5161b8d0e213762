#include "peer/shelf.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skiff::peer {
namespace {

class ShelfTest : public testing::Test {
 protected:
  static kv::BlockKey key(uint8_t byte) {
    kv::BlockKey key{};
    key.fill(byte);
    return key;
  }
  bool put(uint8_t byte, bool ok = true) {
    const int place = shelf_.reserve(key(byte));
    if (place == Shelf::kNone) return false;
    shelf_.fill(place, std::vector<std::byte>(16, std::byte{byte}));
    shelf_.settle(place, ok);
    return true;
  }
  bool has_bytes(uint8_t byte) {
    const auto loan = shelf_.lend(key(byte));
    if (!loan) return false;
    const std::vector<std::byte> bytes(16, std::byte{byte});
    EXPECT_TRUE(std::ranges::equal(loan->bytes(), bytes));
    EXPECT_EQ(loan->sum(), sum_of(bytes));
    return true;
  }
  Shelf shelf_{16, 3, 1};
};

TEST_F(ShelfTest, TheColdestBlockMakesRoom) {
  for (uint8_t i = 1; i <= 4; ++i) EXPECT_TRUE(put(i));
  EXPECT_FALSE(has_bytes(1));
  for (uint8_t i = 2; i <= 4; ++i) EXPECT_TRUE(has_bytes(i));
}

TEST_F(ShelfTest, ALeasedBlockStays) {
  shelf_.lease(key(1));  // before it comes
  EXPECT_TRUE(put(1));
  EXPECT_TRUE(put(2));
  shelf_.lease(key(2));  // after it came
  shelf_.lease(key(2));
  for (uint8_t i = 3; i <= 9; ++i) EXPECT_TRUE(put(i));
  EXPECT_TRUE(has_bytes(1) && has_bytes(2));
  shelf_.lease(key(9));
  EXPECT_FALSE(put(10)) << "every place is leased";
  shelf_.unlease(key(2));
  EXPECT_FALSE(put(10)) << "two leases on one block";
  shelf_.unlease(key(2));
  EXPECT_TRUE(put(10));
  EXPECT_FALSE(has_bytes(2));
}

TEST_F(ShelfTest, ABlockIsReadOnceItIsWhole) {
  const int place = shelf_.reserve(key(1));
  EXPECT_TRUE(shelf_.has(key(1)));
  EXPECT_FALSE(has_bytes(1));
  shelf_.fill(place, std::vector<std::byte>(16, std::byte{1}));
  EXPECT_FALSE(has_bytes(1));
  shelf_.settle(place, true);
  EXPECT_TRUE(has_bytes(1));
}

TEST_F(ShelfTest, AFailedBlockLeavesItsPlaceAndItsLease) {
  shelf_.lease(key(1));
  EXPECT_TRUE(put(1, /*ok=*/false));
  EXPECT_FALSE(shelf_.has(key(1)));
  for (uint8_t i = 2; i <= 4; ++i) EXPECT_TRUE(put(i)) << "all three places are free";
  EXPECT_TRUE(has_bytes(2));
  EXPECT_TRUE(put(1));
  for (uint8_t i = 5; i <= 9; ++i) put(i);
  EXPECT_TRUE(has_bytes(1)) << "it is still leased";
  shelf_.unlease(key(1));
  EXPECT_EQ(shelf_.leased(), 0u);
}

TEST_F(ShelfTest, ALentBlockStaysUntilItIsGivenBack) {
  EXPECT_TRUE(put(1));
  {
    auto loan = shelf_.lend(key(1));
    ASSERT_TRUE(loan);
    const Shelf::Loan moved = std::move(*loan);
    loan.reset();
    for (uint8_t i = 2; i <= 9; ++i) EXPECT_TRUE(put(i));
    EXPECT_EQ(moved.bytes()[0], std::byte{1});
  }
  EXPECT_TRUE(has_bytes(1));
  for (uint8_t i = 10; i <= 12; ++i) EXPECT_TRUE(put(i));
  EXPECT_FALSE(has_bytes(1));
}

TEST_F(ShelfTest, TellsWhatComesAndWhatCannot) {
  std::vector<std::pair<kv::BlockKey, bool>> told;
  shelf_.on_change([&](const kv::BlockKey& k, bool here) { told.emplace_back(k, here); });
  for (uint8_t i = 1; i <= 3; ++i) shelf_.lease(key(i)), put(i);
  put(4);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_TRUE(told[2] == std::pair(key(3), true));
  EXPECT_TRUE(told[3] == std::pair(key(4), false));
}

}  // namespace
}  // namespace skiff::peer
