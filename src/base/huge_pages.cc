#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/round_up.h"

namespace skiff {

void ask_for_huge_pages(std::span<std::byte> memory) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const auto first = reinterpret_cast<uintptr_t>(memory.data());
  const auto begin = round_up(first, kHuge), end = (first + memory.size()) / kHuge * kHuge;
  if (begin < end) madvise(memory.data() + (begin - first), end - begin, MADV_HUGEPAGE);
}

}  // namespace skiff
