// ops/pinned_arena.h -- page-locked host memory for values that go to or come from a device once.
#pragma once
#include <vector>

#include "tensor/memory.h"

namespace skiff {

// Grows by pieces, which stay where they are. A piece is kept for the rounds that follow, and given
// back once 64 of them have not used it. Not thread-safe.
class PinnedArena {
 public:
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Nothing taken may be in use any more.
  void reset();
  size_t held() const;  // bytes

 private:
  std::vector<Buffer> pieces_;
  size_t piece_ = 0, used_ = 0;  // where the next value goes
  size_t reached_ = 0;           // pieces that rounds since the last look have used
  int rounds_ = 0;               // since that look
};

}  // namespace skiff
