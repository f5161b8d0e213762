#include "tensor/pages.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <cstring>

#include "tensor/memory.h"

namespace skiff {
namespace {

size_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* in = std::fopen("/proc/self/statm", "r");
  if (!in) return 0;
  const int read = std::fscanf(in, "%ld %ld", &pages, &resident);
  std::fclose(in);
  return read == 2 ? static_cast<size_t>(resident * sysconf(_SC_PAGESIZE)) : 0;
}

TEST(Pages, AreGivenBackAndTakenAgain) {
  constexpr size_t kBytes = 64u << 20;
  const Buffer buffer(Device{}, kBytes);
  std::memset(buffer.data(), 7, kBytes);
  const size_t before = resident_bytes();
  const size_t given = give_back_pages(buffer.data(), buffer.size());
  EXPECT_GT(given, kBytes - (64u << 10));
  EXPECT_LE(given, kBytes);
  EXPECT_LT(resident_bytes() + (60u << 20), before);
  EXPECT_EQ(give_back_pages(buffer.data(), buffer.size()), 0u) << "nothing is resident";
  std::memset(buffer.data(), 9, kBytes);
  EXPECT_EQ(buffer.data()[kBytes - 1], std::byte{9});
}

TEST(Pages, BytesBesideTheWholePagesStay) {
  const Buffer buffer(Device{}, 3u << 20);
  std::memset(buffer.data(), 7, buffer.size());
  std::byte* const inner = buffer.data() + 100;
  EXPECT_EQ(give_back_pages(inner, 50), 0u);
  give_back_pages(inner, (2u << 20) + 1);
  for (size_t i = 0; i <= 100; ++i) EXPECT_EQ(buffer.data()[i], std::byte{7});
  for (size_t i = 101 + (2u << 20); i < buffer.size(); ++i)
    ASSERT_EQ(buffer.data()[i], std::byte{7}) << i;
}

}  // namespace
}  // namespace skiff
