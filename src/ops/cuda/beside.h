// ops/cuda/beside.h -- which operation may run at the same time as the product before it.
//
// A product whose kernel triggers the next one behind its own griddepcontrol.wait has every earlier
// kernel behind it by then (launch.cuh). A kernel that touches nothing of that product can
// therefore begin without waiting, and waits at its end instead, so that whoever waits for it waits
// for both. With few rows each of them takes some microseconds of latency and a part of the
// multiprocessors: a router and a shared expert take as long together as the longer one alone.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "tensor/tensor.h"

namespace skiff::cuda {

// Returns whether two tensors share memory, counting the gaps between rows.
inline bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& t) {
    const int64_t elements = t.rows() == 0 ? 0 : (t.rows() - 1) * t.row_stride + t.cols();
    return static_cast<const std::byte*>(t.data) + byte_size(t.dtype, elements);
  };
  return a && b && a.data < end(b) && b.data < end(a);
}

// The product that was started last, if the next kernel may run beside it.
class LastProduct {
 public:
  void remember(const Tensor& out, const Tensor& x) { out_ = out, x_ = x; }
  void forget() { out_ = {}; }

  // Returns whether an operation with these operands may begin while the product runs.
  bool allows(std::initializer_list<Tensor> reads, std::initializer_list<Tensor> writes) const {
    if (!out_) return false;
    for (const Tensor& t : reads)
      if (overlap(t, out_)) return false;
    for (const Tensor& t : writes)
      if (overlap(t, out_) || overlap(t, x_)) return false;
    return true;
  }

 private:
  Tensor out_, x_;
};

}  // namespace skiff::cuda
