// engine/zeroed.h -- tables of numbers that begin as zeros.
#pragma once
#include <vector>

#include "ops/ops.h"

namespace skiff::engine {

// Fills `memory` with zeros, waits until that is done, and returns it as [numbers] i32.
inline Tensor zeroed(const Buffer& memory, Ops& ops) {
  std::vector<int32_t> zeros(memory.size() / sizeof(int32_t), 0);
  const Tensor out = memory.view(DType::kI32, {std::ssize(zeros)});
  ops.copy(out, host_tensor(zeros.data(), DType::kI32, {std::ssize(zeros)}));
  ops.wait(ops.mark());
  return out;
}

}  // namespace skiff::engine
