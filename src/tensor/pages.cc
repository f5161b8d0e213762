#include "tensor/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace skiff {
namespace {

// Counts a bounded piece at a time, because mincore() writes a byte for each page.
size_t resident_pages(std::byte* begin, size_t pages, size_t page) {
  constexpr size_t kPiece = 4096;
  std::vector<unsigned char> there(std::min(pages, kPiece));
  size_t count = 0;
  for (size_t at = 0; at < pages; at += kPiece) {
    const size_t now = std::min(kPiece, pages - at);
    if (mincore(begin + at * page, now * page, there.data()) != 0) continue;
    for (size_t i = 0; i < now; ++i) count += there[i] & 1;
  }
  return count;
}

}  // namespace

size_t give_back_pages(std::byte* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(data);
  const size_t skip = (page - at % page) % page;
  if (bytes < skip + page) return 0;
  std::byte* const begin = data + skip;
  const size_t pages = (bytes - skip) / page, held = resident_pages(begin, pages, page);
  return madvise(begin, pages * page, MADV_DONTNEED) == 0 ? held * page : 0;
}

}  // namespace skiff
