// comm/devices/shared_memory.h -- memory on one CUDA device that others write to.
#pragma once
#include <cstddef>
#include <span>

namespace skiff::devices {

// Virtual memory management makes it visible to `devices` alone. (cudaDeviceEnablePeerAccess would
// map every allocation of a device to the others, so that one could wait for a kernel on another
// device, which itself waits for the rank that allocates.) Throws LoadError if there is no room, or
// if a device cannot reach the memory of another.
class SharedMemory {
 public:
  SharedMemory(int device, std::span<const int> devices, size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // at least what was asked for

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace skiff::devices
