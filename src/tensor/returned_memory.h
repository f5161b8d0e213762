// tensor/returned_memory.h -- memory of Buffers that is given back to the system and taken again,
// at the same addresses, so that views of it and recorded steps stay valid.
#pragma once
#include "tensor/memory.h"

namespace skiff {

// Whole pages of host memory leave, but not of pinned memory; on a CUDA device Buffers of 2 MiB and
// more leave, and smaller ones stay as they are. No operation on the memory may be under way.

// Returns whether memory that `device` computes with leaves at all.
bool gives_back(Device device);
// Lets the system have the memory, whose contents are lost. Returns the bytes that left; for a
// Buffer on a device that has left before, nothing happens and they are counted again.
size_t give_back(const Buffer& buffer);
// Makes the memory usable again; it holds anything. Host memory comes by itself when it is written.
// Throws OutOfDeviceMemory, and then it is still gone.
void take_back(const Buffer& buffer);
// Puts the memory of `from`, of the same size and device, with what it holds at the addresses of
// `to`, whether there is memory or has left; `from` has none afterwards. Returns false, having done
// nothing, where values must be copied instead: `to` is usable then.
bool move_to(const Buffer& to, const Buffer& from);

}  // namespace skiff
