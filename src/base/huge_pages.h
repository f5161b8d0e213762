// base/huge_pages.h -- large memory that is read and written from front to back.
#pragma once
#include <cstddef>
#include <span>

namespace skiff {

// Asks the system to back the whole huge pages (2 MiB) within this memory by such pages, which
// makes its first use and its streaming cheaper. A refusal changes nothing.
void ask_for_huge_pages(std::span<std::byte> memory);

}  // namespace skiff
