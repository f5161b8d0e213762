// ops/cuda/one_row/one_row.h -- fuses successive operations on one row into one kernel.
//
// Each operation is offered to it in order. One that fits behind the gathered operations joins
// them, and nothing is launched yet. start() launches them as one kernel, which writes every output
// to its tensor as Ops says; it must be called before anything else goes to the stream.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/one_row/segment.h"
#include "ops/ops.h"

namespace skiff::cuda {

class OneRow {
 public:
  // `scratch`: kScratchBytes on the current device, which must outlive this and be used in one
  // stream only. With `gathers` false nothing joins; it may be true only if may_gather() allows it.
  OneRow(void* scratch, bool gathers);
  static constexpr size_t kScratchBytes = size_t{2} << 20;

  // Return true if the operation joined: bf16 on Hopper, one row, inner dimensions multiples of
  // kUnit.
  bool linear(const Tensor& out, const Tensor& x, const Linear& w);
  bool gated_linear(const Tensor& out, const Tensor& x, const Linear& w, Act act);
  bool add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta, const Norm& norm);

  // The next weights: the gathered kernel may prefetch them into the L2 at its end.
  void soon(const Linear& w);

  bool empty() const { return segment_.steps == 0; }
  void start(cudaStream_t stream);

 private:
  // The output of a step, which later steps may take as input.
  struct Made {
    const void* data = nullptr;
    int step = 0;
    bool is(const Tensor& t) const { return data && data == t.data; }
  };

  bool takes_row(const Tensor& x) const;
  bool product(const Tensor& out, const Tensor& x, const Linear& w, bool gated, Act act);
  SegmentStep* step_that_has(const Tensor& x);
  SegmentStep& add_step(const SegmentStep& step);
  SegmentStep& last() { return segment_.step[segment_.steps - 1]; }
  // The grid-wide barrier between a step and the readers of its output.
  int hand_over(int step);
  bool handed_over_since(int step) const;
  void* copy_of(int step);
  void* take(int64_t bytes);
  SegmentShares shares(int64_t things) const;
  void settle_residual();
  void share_out();

  void* scratch_;
  int blocks_ = 0;  // 0: nothing joins

  Segment segment_;
  size_t used_ = 0;  // bytes of scratch
  int hand_overs_ = 0;
  Made x_, out_;  // the input in shared memory; the last GEMV's output
  int64_t out_cols_ = 0;
  Tensor residual_;
  int norm_steps_ = 0, last_norm_ = 0;  // norms that add to the residual
};

}  // namespace skiff::cuda
