// ops/upload.h -- small arrays that the host makes for each step, sent to where Ops computes with
// one copy.
#pragma once
#include <array>

#include "ops/ops.h"

namespace skiff {

// A round: begin(), take() and fill the arrays; then either send(), or arrival() for a step's
// Ops::begin_step and done_with() once that was called. Where Ops computes on the host, nothing is
// copied. The same arrays in the same order get the same places there round after round, which
// recorded work (Ops::replay) relies on. Two rounds may be on their way at once.
class Upload {
 public:
  // Room for `bytes` a round, each array rounded up to whole cache lines. `ops` must outlive it.
  Upload(Ops& ops, size_t bytes);
  void begin();
  // Host memory to be filled until it is sent. CHECKs that it fits.
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Where an array of this round is for Ops, once sent.
  Tensor there(Tensor taken) const;
  void send();
  Arrival arrival() const;  // of what was taken so far; empty on host backends
  // All that reads the round's arrays is done once `mark` is.
  void done_with(uint64_t mark);

 private:
  Ops& ops_;
  std::array<Buffer, 2> host_;
  std::array<uint64_t, 2> sent_{};  // marks: until then the round's host memory is in use
  bool open_ = false;               // a round has begun and has no mark yet
  Buffer device_;                   // empty where the host computes
  size_t round_ = 0, used_ = 0;
};

}  // namespace skiff
