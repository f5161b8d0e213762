#include "tensor/memory.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/load_error.h"

namespace skiff {
namespace {

size_t round_up(size_t n) { return (n + kTensorAlign - 1) / kTensorAlign * kTensorAlign; }

size_t bytes_of(const Tensor& t) {
  return (static_cast<size_t>(t.elements()) * static_cast<size_t>(bits(t.dtype)) + 7) / 8;
}

}  // namespace

Buffer::Buffer(Device device, size_t bytes) : size_(bytes), device_(device) {
  SKIFF_CHECK(device.kind == Device::kCpu, "this build has no CUDA backend");
  if (bytes == 0) return;
  data_ = static_cast<std::byte*>(std::aligned_alloc(kTensorAlign, round_up(bytes)));
  if (!data_) fail_load("cannot allocate {} bytes of host memory", bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  return *this;
}

Buffer::~Buffer() { std::free(data_); }

Tensor Buffer::view(DType dtype, std::initializer_list<int64_t> shape, size_t byte_offset) const {
  Tensor t = host_tensor(data_ + byte_offset, dtype, shape);
  t.device = device_;
  SKIFF_CHECK(byte_offset + bytes_of(t) <= size_, "{} bytes at {} of {}", bytes_of(t), byte_offset,
              size_);
  return t;
}

Tensor Arena::take(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t = storage_.view(dtype, shape, used_);
  used_ += round_up(bytes_of(t));
  peak_ = std::max(peak_, used_);
  return t;
}

}  // namespace skiff
