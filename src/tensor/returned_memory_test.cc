// Memory of Buffers on the host; that of devices is in engine/residency_device_test.cc.
#include "tensor/returned_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace skiff {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(ReturnedMemory, OfTheHostLeavesAndComesWhenItIsWritten) {
  ASSERT_TRUE(gives_back(Device{}));
  const Buffer buffer(Device{}, 8 * kMiB);
  std::memset(buffer.data(), 7, buffer.size());
  const size_t given = give_back(buffer);
  EXPECT_GT(given, 7 * kMiB);
  EXPECT_LE(given, 8 * kMiB);
  EXPECT_EQ(give_back(buffer), 0u) << "nothing is left to give";
  take_back(buffer);
  std::memset(buffer.data(), 9, buffer.size());
  EXPECT_EQ(buffer.data()[buffer.size() - 1], std::byte{9});
}

TEST(ReturnedMemory, OfTheHostIsCopiedAndNotMoved) {
  const Buffer to(Device{}, 4 * kMiB), from(Device{}, 4 * kMiB);
  std::memset(to.data(), 1, to.size());
  std::memset(from.data(), 2, from.size());
  EXPECT_FALSE(move_to(to, from));
  EXPECT_EQ(to.data()[0], std::byte{1});
  EXPECT_EQ(from.data()[0], std::byte{2});
}

TEST(ReturnedMemory, OfNothingIsNothing) {
  const Buffer none;
  EXPECT_EQ(give_back(none), 0u);
  take_back(none);
  EXPECT_FALSE(move_to(none, Buffer()));
}

TEST(ReturnedMemory, OfADeviceThatIsNotThereNeverLeaves) {
  EXPECT_FALSE(gives_back({Device::kCuda, 99}));
}

}  // namespace
}  // namespace skiff
