// ops/upload.h -- small arrays that the host makes for each step, sent to where Ops computes with
// one copy.
#pragma once
#include <array>

#include "ops/ops.h"

namespace skiff {

// A round: begin(), take() and fill the arrays, send(). Where Ops computes on the host, nothing is
// copied. The same arrays in the same order get the same places there round after round, which
// recorded work (Ops::replay) relies on. Two rounds may be on their way at once.
class Upload {
 public:
  // Room for `bytes` a round, each array rounded up to whole cache lines. `ops` must outlive it.
  Upload(Ops& ops, size_t bytes);
  void begin();
  // Host memory to be filled until send(). CHECKs that it fits.
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Where an array of this round is for Ops, once sent.
  Tensor there(Tensor taken) const;
  void send();

 private:
  Ops& ops_;
  std::array<Buffer, 2> host_;
  std::array<uint64_t, 2> sent_{};  // marks: until then the round's host memory is in use
  Buffer device_;                   // empty where the host computes
  size_t round_ = 0, used_ = 0;
};

}  // namespace skiff
