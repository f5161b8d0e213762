#include "tensor/device_memory.h"

#include <cstdlib>

#include "base/load_error.h"
#include "base/round_up.h"

namespace skiff {
namespace {

constexpr size_t kAlign = 64;

}  // namespace

int num_cuda_devices() { return 0; }

DeviceMemory device_memory(Device) { fail_load("this build has no CUDA backend"); }

std::byte* allocate_on_device(Device, size_t) { fail_load("this build has no CUDA backend"); }

void free_on_device(Device, std::byte*, size_t) {}

bool can_leave_device(Device, size_t) { return false; }

size_t leave_device(Device, std::byte*, size_t) { return 0; }

bool return_to_device(Device, std::byte*, size_t) { return false; }

void move_on_device(Device, std::byte*, std::byte*, size_t) {}

std::byte* allocate_pinned(size_t bytes) {
  return static_cast<std::byte*>(std::aligned_alloc(kAlign, round_up(bytes, kAlign)));
}

void free_pinned(std::byte* data) { std::free(data); }

}  // namespace skiff
