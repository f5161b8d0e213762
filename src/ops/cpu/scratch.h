// ops/cpu/scratch.h -- memory that grows to what was asked of it and is then kept.
#pragma once
#include "tensor/memory.h"

namespace skiff::cpu {

// What take() gave or reserve() replaced is lost at the next take(). Not thread-safe.
class Scratch {
 public:
  template <class T>
  T* take(int64_t count) {
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    if (size > buffer_.size()) buffer_ = Buffer({}, size + size / 4);
    return reinterpret_cast<T*>(buffer_.data());
  }
  // Nothing grows up to this size from now on.
  void reserve(size_t size) {
    if (size > buffer_.size()) buffer_ = Buffer({}, size);
  }
  size_t held() const { return buffer_.size(); }

 private:
  Buffer buffer_;
};

}  // namespace skiff::cpu
