// ops/pinned_arena.h -- page-locked host memory for values that go to or come from a device once.
#pragma once
#include <vector>

#include "tensor/memory.h"

namespace skiff {

// Grows by pieces, which stay where they are and are kept for the next round. Not thread-safe.
class PinnedArena {
 public:
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Nothing taken may be in use any more.
  void reset();

 private:
  std::vector<Buffer> pieces_;
  size_t piece_ = 0, used_ = 0;  // where the next value goes
};

}  // namespace skiff
