#include "tensor/returned_memory.h"

#include "tensor/device_memory.h"
#include "tensor/pages.h"

namespace skiff {
namespace {

bool leaves_device(const Buffer& buffer) {
  return buffer.device().kind == Device::kCuda && can_leave_device(buffer.device(), buffer.size());
}

}  // namespace

bool gives_back(Device device) {
  constexpr size_t kLarge = size_t{1} << 30;
  return device == Device{} || can_leave_device(device, kLarge);
}

size_t give_back(const Buffer& buffer) {
  if (buffer.device() == Device{}) return give_back_pages(buffer.data(), buffer.size());
  return leaves_device(buffer) ? leave_device(buffer.device(), buffer.data(), buffer.size()) : 0;
}

void take_back(const Buffer& buffer) {
  if (!leaves_device(buffer)) return;
  const Device device = buffer.device();
  if (return_to_device(device, buffer.data(), buffer.size())) return;
  const DeviceMemory memory = device_memory(device);
  throw OutOfDeviceMemory(
      fmt::format("cannot take {} bytes on CUDA device {} again: {} of {} bytes "
                  "are free",
                  buffer.size(), device.index, memory.free, memory.total));
}

bool move_to(const Buffer& to, const Buffer& from) {
  SKIFF_CHECK_EQ(to.size(), from.size());
  if (!leaves_device(to)) return false;
  move_on_device(to.device(), to.data(), from.data(), to.size());
  return true;
}

}  // namespace skiff
