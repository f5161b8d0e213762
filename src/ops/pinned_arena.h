// ops/pinned_arena.h -- page-locked host memory for values that go to or come from a device once.
#pragma once
#include <vector>

#include "tensor/memory.h"

namespace skiff {

// Grows by pieces, which never move. A piece is kept for later rounds, and freed once 64 rounds
// have not used it. Not thread-safe.
class PinnedArena {
 public:
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Begins a round. Memory taken before must no longer be in use.
  void reset();
  size_t held() const;  // bytes that are allocated

 private:
  std::vector<Buffer> pieces_;
  size_t piece_ = 0, used_ = 0;  // where the next tensor goes
  size_t reached_ = 0;           // pieces used by rounds since the last check
  int rounds_ = 0;               // rounds since that check
};

}  // namespace skiff
