// ops/cuda/one_row/one_row.h -- gathers operations on one row and starts them as one kernel.
//
// Each operation is offered to it as it is asked for; one that fits behind what has gathered joins,
// and nothing is started yet. What has joined is done, every output in its tensor as Ops says, once
// start() has been called: before anything else goes to the stream.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/one_row/segment.h"
#include "ops/ops.h"

namespace skiff::cuda {

class OneRow {
 public:
  // `scratch`: kScratchBytes on the current device, which must outlive this and be used in one
  // stream only. `gathers`: false, and nothing joins; may_gather() of the device must allow it.
  OneRow(void* scratch, bool gathers);
  static constexpr size_t kScratchBytes = size_t{2} << 20;

  // True: joined. bf16 on Hopper, one row, inner dimensions a multiple of kUnit.
  bool linear(const Tensor& out, const Tensor& x, const Linear& w);
  bool gated_linear(const Tensor& out, const Tensor& x, const Linear& w, Act act);
  bool add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta, const Norm& norm);

  // What has gathered may fetch this towards the device's cache at its end.
  void soon(const Linear& w);

  bool empty() const { return segment_.steps == 0; }
  void start(cudaStream_t stream);

 private:
  // A tensor that a step has made, and steps behind it may take.
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
  // Of the output of a step, for steps behind it.
  int hand_over(int step);
  bool handed_over_since(int step) const;
  void* copy_of(int step);
  void* take(int64_t bytes);
  SegmentShares shares(int64_t things) const;
  void settle_residual();
  void share_out();

  void* scratch_;
  int blocks_ = 0;  // 0: a device that cannot

  Segment segment_;
  size_t used_ = 0;  // of the scratch
  int hand_overs_ = 0;
  Made x_, out_;  // what lies in shared memory as x; the last product's output
  int64_t out_cols_ = 0;
  Tensor residual_;
  int norm_steps_ = 0, last_norm_ = 0;  // that add something
};

}  // namespace skiff::cuda
