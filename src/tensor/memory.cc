#include "tensor/memory.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/huge_pages.h"
#include "base/round_up.h"
#include "tensor/device_memory.h"
#include "tensor/out_of_memory.h"

namespace skiff {
namespace {

size_t bytes_of(const Tensor& t) { return byte_size(t.dtype, t.elements()); }

}  // namespace

Buffer::Buffer(Device device, size_t bytes) : size_(bytes), device_(device) {
  if (bytes == 0) return;
  if (device.kind == Device::kCuda) {
    data_ = allocate_on_device(device, bytes);
    if (data_) return;
    const DeviceMemory memory = device_memory(device);
    throw OutOfDeviceMemory(
        fmt::format("cannot allocate {} bytes on CUDA device {}: {} of {} bytes are free", bytes,
                    device.index, memory.free, memory.total));
  }
  data_ = static_cast<std::byte*>(std::aligned_alloc(kTensorAlign, round_up(bytes, kTensorAlign)));
  if (!data_) throw OutOfHostMemory(fmt::format("cannot allocate {} bytes of host memory", bytes));
}

Buffer Buffer::pinned(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  buffer.data_ = allocate_pinned(bytes);
  if (!buffer.data_)
    throw OutOfHostMemory(
        fmt::format("cannot allocate {} bytes of page-locked host memory", bytes));
  buffer.size_ = bytes;
  buffer.pinned_ = true;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      pinned_(other.pinned_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Buffer::~Buffer() {
  if (!data_) return;
  if (device_.kind == Device::kCuda) {
    free_on_device(device_, data_, size_);
  } else if (pinned_) {
    free_pinned(data_);
  } else {
    std::free(data_);
  }
}

Tensor Buffer::view(DType dtype, std::initializer_list<int64_t> shape, size_t byte_offset) const {
  Tensor t = host_tensor(data_ + byte_offset, dtype, shape);
  t.device = device_;
  SKIFF_CHECK(byte_offset + bytes_of(t) <= size_, "{} bytes at {} of {}", bytes_of(t), byte_offset,
              size_);
  return t;
}

// A step passes through all of its arena, row by row.
Arena::Arena(Buffer storage) : storage_(std::move(storage)) {
  if (storage_.data() && storage_.device() == Device{})
    ask_for_huge_pages({storage_.data(), storage_.size()});
}

size_t Arena::size_of(DType dtype, int64_t elements) {
  return round_up(byte_size(dtype, elements), kTensorAlign);
}

Tensor Arena::take(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t = storage_.view(dtype, shape, used_);
  used_ += size_of(dtype, t.elements());
  peak_ = std::max(peak_, used_);
  return t;
}

}  // namespace skiff
