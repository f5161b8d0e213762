#include "peer/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace skiff::peer {
namespace {

constexpr size_t kBytes = 3 << 20;

Fd copy_of(int file) { return Fd(fcntl(file, F_DUPFD_CLOEXEC, 0)); }

TEST(SharedMemory, WhoHasTheFileReadsWhatIsWritten) {
  const ShareableMemory memory(kBytes, /*shared=*/true);
  ASSERT_GE(memory.file(), 0);
  const auto seen = map_shared(copy_of(memory.file()), kBytes);
  ASSERT_TRUE(seen);
  ASSERT_EQ((*seen)->bytes().size(), kBytes);
  memory.bytes()[kBytes - 1] = std::byte{7};
  EXPECT_EQ((*seen)->bytes()[kBytes - 1], std::byte{7});
}

TEST(SharedMemory, OutlivesItsOwner) {
  auto memory = std::make_unique<ShareableMemory>(kBytes, /*shared=*/true);
  ASSERT_GE(memory->file(), 0);
  std::ranges::fill(memory->bytes(), std::byte{3});
  const auto seen = map_shared(copy_of(memory->file()), kBytes);
  ASSERT_TRUE(seen);
  memory.reset();
  EXPECT_TRUE(std::ranges::all_of((*seen)->bytes(), [](std::byte b) { return b == std::byte{3}; }));
}

TEST(SharedMemory, NobodyElseChangesIt) {
  const ShareableMemory memory(kBytes, /*shared=*/true);
  ASSERT_GE(memory.file(), 0);
  const Fd file = copy_of(memory.file());
  EXPECT_EQ(mmap(nullptr, kBytes, PROT_WRITE, MAP_SHARED, file.get(), 0), MAP_FAILED);
  EXPECT_LT(pwrite(file.get(), "x", 1, 0), 0);
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  EXPECT_NE(ftruncate(file.get(), 2 * kBytes), 0);
  EXPECT_EQ(memory.bytes()[0], std::byte{});
}

TEST(SharedMemory, IsPrivateWhereNobodyAsks) {
  const ShareableMemory memory(kBytes, /*shared=*/false);
  EXPECT_LT(memory.file(), 0);
  std::ranges::fill(memory.bytes(), std::byte{1});
  EXPECT_EQ(memory.bytes()[kBytes - 1], std::byte{1});
}

TEST(SharedMemory, WhatCouldBeTakenAwayIsNotMapped) {
  const Fd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_FALSE(map_shared(unsealed, kBytes));
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(map_shared(unsealed, kBytes));
  EXPECT_FALSE(map_shared(unsealed, kBytes + 1)) << "less than a block";
  std::FILE* plain = std::tmpfile();
  EXPECT_FALSE(map_shared(copy_of(fileno(plain)), 0));
  std::fclose(plain);
  EXPECT_FALSE(map_shared(Fd(), 0));
}

}  // namespace
}  // namespace skiff::peer
