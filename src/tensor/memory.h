// tensor/memory.h -- the only two things that own tensor bytes.
#pragma once
#include <cstddef>

#include "tensor/tensor.h"

namespace skiff {

constexpr size_t kTensorAlign = 64;  // every Buffer and Arena tensor starts on a cache line

// Long-lived bytes (weights, KV pages). Move-only; freed on destruction. The contents of a new
// Buffer are unspecified. Throws LoadError with the size when memory cannot be had.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device device, size_t bytes);
  // Host memory that devices copy from and to while they work (see tensor/device_memory.h). They
  // can also read and write it in place, slowly. The system has little of it, so large and
  // long-lived data belongs elsewhere.
  static Buffer pinned(size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  size_t size() const { return size_; }
  std::byte* data() const { return data_; }
  Device device() const { return device_; }
  Tensor view(DType dtype, std::initializer_list<int64_t> shape, size_t byte_offset = 0) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Device device_;
  bool pinned_ = false;
};

// One step's activations. take() only bumps a pointer, so the same plan gets the same
// addresses every step, which is what a captured CUDA graph needs. Not thread-safe.
class Arena {
 public:
  explicit Arena(Buffer storage);
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);  // CHECKs that it fits
  static size_t size_of(DType dtype, int64_t elements);  // bytes that take() uses for such a tensor
  void reset() { used_ = 0; }
  // Gives back everything that was taken since mark() returned `used`.
  size_t mark() const { return used_; }
  void rewind(size_t used) { used_ = used; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return storage_.size(); }

 private:
  Buffer storage_;
  size_t used_ = 0, peak_ = 0;
};

}  // namespace skiff
