// ops/cpu/scratch.h -- memory that grows to the largest size taken and is then kept.
#pragma once
#include "tensor/memory.h"

namespace skiff::cpu {

// take() and reserve() may replace the memory that an earlier take() returned. Not thread-safe.
class Scratch {
 public:
  template <class T>
  T* take(int64_t count) {
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    if (size > buffer_.size()) buffer_ = Buffer({}, size + size / 4);
    return reinterpret_cast<T*>(buffer_.data());
  }
  // Allocates `size` bytes, so that take() allocates nothing up to this size.
  void reserve(size_t size) {
    if (size > buffer_.size()) buffer_ = Buffer({}, size);
  }
  size_t held() const { return buffer_.size(); }

 private:
  Buffer buffer_;
};

}  // namespace skiff::cpu
