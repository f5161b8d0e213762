// tensor/pages.h -- gives the memory behind an address range back to the system and keeps the
// range.
#pragma once
#include <cstddef>

namespace skiff {

// Lets the system have the whole pages among these bytes of host memory, which their owner keeps:
// their contents are lost, and a page takes memory again when it is touched. Returns the bytes that
// the process holds no longer; fewer where some of these were not resident, and 0 where the system
// refuses, as it does for locked memory.
size_t give_back_pages(std::byte* data, size_t bytes);

}  // namespace skiff
