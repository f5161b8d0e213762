// ops/upload.h -- small arrays that the host makes for each step, sent to where Ops computes with
// one copy.
#pragma once
#include <array>

#include "ops/ops.h"

namespace skiff {

// In each round, call begin(), take() the arrays and fill them; then call either send(), or
// arrival() for a step's Ops::begin_step and done_with() afterwards. Where Ops computes on the
// host, nothing is copied. The same arrays in the same order get the same device addresses in each
// round, which recorded work (Ops::replay) relies on. Two rounds may be in flight at once.
class Upload {
 public:
  // `bytes` bounds the arrays of a round, each rounded up to whole cache lines. `ops` must outlive
  // this.
  Upload(Ops& ops, size_t bytes);
  void begin();
  // Returns host memory to be filled before it is sent. CHECKs that it fits.
  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  // Returns where Ops finds an array of this round once it has been sent.
  Tensor there(Tensor taken) const;
  void send();
  Arrival arrival() const;  // covers the arrays taken so far; empty on host backends
  // All operations that read the round's arrays are complete once `mark` is.
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
