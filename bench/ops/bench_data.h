// bench/ops/bench_data.h -- tensors for benchmarks of operations, and the memory behind them.
#pragma once
#include <initializer_list>
#include <vector>

#include "base/huge_pages.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::bench {

class Data {
 public:
  explicit Data(bool huge_pages = false) : huge_pages_(huge_pages) {}
  Tensor make(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    buffers_.emplace_back(Device{}, byte_size(dtype, n));
    const Buffer& b = buffers_.back();
    if (huge_pages_) ask_for_huge_pages({b.data(), b.size()});
    return b.view(dtype, shape);
  }
  // Numbers of a fixed sequence within [-scale, scale).
  Tensor random(std::initializer_list<int64_t> shape, float scale) {
    const Tensor t = make(DType::kBF16, shape);
    for (int64_t i = 0; i < t.elements(); ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      t.as<BF16>()[i] = to_bf16((static_cast<float>(state_ >> 8) * 0x1p-23f - 1) * scale);
    }
    return t;
  }
  Tensor ints(int first, int count, int step) {
    const Tensor t = make(DType::kI32, {count});
    for (int i = 0; i < count; ++i) t.as<int32_t>()[i] = first + i * step;
    return t;
  }
  Buffer& owner() { return buffers_.emplace_back(); }

 private:
  bool huge_pages_;
  std::vector<Buffer> buffers_;
  uint32_t state_ = 12345;
};

}  // namespace skiff::bench
