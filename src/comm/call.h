// comm/call.h -- what a rank does in a collective, for comparing: unlike things are not added up.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace skiff::comm {

enum class Collective : uint8_t { kReduce, kReduceAddNorm, kGather, kLeast, kDispatch, kCombine };

struct Call {
  Collective kind = Collective::kReduce;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;

  bool operator==(const Call&) const = default;
};

inline Call call_of(Collective kind, const Tensor& x) {
  return {.kind = kind, .dtype = x.dtype, .rows = x.rows(), .cols = x.cols()};
}

// Says why rank 0 and another one cannot go on together.
std::string describe_apart(const Call& first, const Call& other, int rank);

}  // namespace skiff::comm
