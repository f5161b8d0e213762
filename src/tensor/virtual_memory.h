// tensor/virtual_memory.h -- memory of CUDA devices that is had apart from its addresses ("Virtual
// Memory Management" of the CUDA driver API), so that it can leave and come while whatever refers
// to an address stays valid. Only where CUDA is built. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

namespace skiff {

// Returns the unit of sizes on that device; 0 where the device, or the driver, has no such memory.
// All sizes below are multiples of it. Requires that the device was chosen once before.
size_t virtual_unit(int device);

// Where something cannot be done for another reason than want of room, these throw a LoadError.
std::byte* reserve_addresses(size_t bytes);
void release_addresses(std::byte* at, size_t bytes);  // nothing is mapped there
// Puts new memory of `device` behind the addresses, which `readers` may read and write. Returns
// false, and changes nothing, where there is no room.
bool map_memory(std::byte* at, size_t bytes, int device, std::span<const int> readers);
// Lets the system have the memory behind the addresses, which no kernel may use any more. Where
// there is none, nothing happens.
void unmap_memory(std::byte* at, size_t bytes);
// Moves the memory of `device` at `from`, with what it holds, to `to`, whose own memory, if there
// is any, goes to the system. Kernels of that device alone use it from then on.
void remap_memory(std::byte* to, std::byte* from, size_t bytes, int device);

}  // namespace skiff
