#include "peer/resident_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "peer/shared_memory.h"

namespace skiff::peer {
namespace {

// Bytes of the memory that are resident.
size_t resident(std::span<std::byte> memory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((memory.size() + page - 1) / page);
  EXPECT_EQ(mincore(memory.data(), memory.size(), pages.data()), 0);
  return page * static_cast<size_t>(std::ranges::count_if(pages, [](auto p) { return p & 1; }));
}

bool comes_to(std::span<std::byte> memory, size_t bytes) {
  for (int i = 0; i < 2000 && resident(memory) < bytes; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return resident(memory) >= bytes;
}

TEST(ResidentAhead, StaysAWindowAheadOfWhatIsUsed) {
  constexpr size_t kBytes = 20 << 20, kWindow = 4 << 20;
  // Whether memory that is the process's alone has more resident is a matter of huge pages.
  const ShareableMemory memory(kBytes, /*shared=*/true);
  const auto bytes = memory.bytes();
  if (madvise(bytes.data(), 1, 23) != 0) GTEST_SKIP() << "this system clears pages at their use";
  bytes[0] = bytes[9 << 20] = std::byte{7};
  ResidentAhead ahead(bytes, kWindow);
  EXPECT_TRUE(comes_to(bytes, kWindow));
  ahead.in_use(5 << 20);
  EXPECT_TRUE(comes_to(bytes, 9 << 20));
  ahead.in_use(1 << 20);  // goes back nowhere
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(resident(bytes), size_t{14} << 20);
  ahead.in_use(kBytes);
  EXPECT_TRUE(comes_to(bytes, kBytes));
  EXPECT_EQ(bytes[0], std::byte{7});
  EXPECT_EQ(bytes[9 << 20], std::byte{7});
  EXPECT_EQ(bytes[1], std::byte{});
}

}  // namespace
}  // namespace skiff::peer
