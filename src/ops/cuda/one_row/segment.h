// ops/cuda/one_row/segment.h -- a segment: the GEMVs and norms ("steps") of one row between the
// attentions of two layers, as one kernel.
//
// With one row a step's time is that of reading weights, and separate kernels leave the memory idle
// while the last block of each one ends. Here a block on each multiprocessor knows which weight
// rows it will read in every step, and its producer warp loads them in that order into a ring in
// shared memory, as far ahead as the ring allows: across the ends of steps, and before the previous
// kernel has ended. The other warps multiply (tensor cores, f32 sums). Between steps the blocks
// exchange outputs through the L2, behind a grid-wide barrier (a hand-over): all blocks increment a
// counter and wait for it.
//
// Mixtures of experts stay outside: they need eight hand-overs a layer, which cost more than
// separate kernels (docs/performance_cuda_products.md).
//
// Results do not depend on the number of blocks: an output is a sum over slices of 256 inputs, in
// an order that depends on the inner dimension only.
//
// Why there is no deadlock: blocks wait for each other, so all must be resident. There is one for
// each multiprocessor, each fits on an empty one, and none waits for another before all earlier
// kernels of the stream are complete (wait_for_previous()). Later kernels start only once all
// blocks of this one run (let_next_start()). So only one stream of a device may have segments in
// flight.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "arch/spec.h"

namespace skiff::cuda {

constexpr int kSegmentSteps = 6;
constexpr int kSegmentHandOvers = kSegmentSteps + 1;
constexpr int kUnit = 256;          // inputs of a weight row that a warp multiplies at a time
constexpr int kMaxUnits = 10;       // units of a weight row in one item of the ring
constexpr int kMaxNormCols = 8192;  // every block keeps the row of a norm in registers
constexpr int kCounterStride = 32;  // in unsigned; each counter has a cache line of its own

// How items are divided among the blocks: `each`, and one more for the first `more` blocks.
struct SegmentShares {
  int each = 0, more = 0;
};

// out[feature] = weight[feature] * x + bias; if `gated`, act(gate) * up, where the second half of
// the weight rows are the ups.
struct SegmentProduct {
  const __nv_bfloat16* weight = nullptr;  // [features, twice if gated][256 * units]
  const float* bias = nullptr;            // may be null
  bool gated = false;
  Act act = Act::kSilu;
  int features = 0;
  int units = 0, item_units = 0;
  SegmentShares shares;  // the division of features
  int turn = 0;          // the block that gets the first features
  bool f32 = false;      // out and copy are f32, not bf16
  void* out = nullptr;
  void* copy = nullptr;  // out once more, for later steps; may be null
};

enum class SegmentInput { kKeep, kRow, kNorm };

// A step makes its input x, then multiplies.
struct alignas(16) SegmentStep {
  int wait = -1;    // the hand-over to wait for at the beginning
  int arrive = -1;  // the hand-over to arrive at in the end
  SegmentInput input = SegmentInput::kKeep;
  int cols = 0;                        // columns of the input
  SegmentShares shares;                // the division of columns, in groups of four
  const __nv_bfloat16* row = nullptr;  // the input of kRow
  // kNorm: residual + delta is written to residual_out unless that is null, its norm to x and out.
  const float* residual = nullptr;
  bool residual_early = false;  // the residual is complete before `wait`
  const __nv_bfloat16* delta = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  float* residual_out = nullptr;
  __nv_bfloat16* out = nullptr;

  SegmentProduct product;
};

struct alignas(16) Segment {
  int steps = 0;
  int x_bytes = 0, ring_bytes = 0, on_way_bytes = 0;
  // The first weights of the next segment, [features][soon_in], and how many bytes of each block's
  // part are prefetched into the L2 before this segment ends.
  const __nv_bfloat16* soon = nullptr;
  SegmentShares soon_shares;
  int soon_in = 0, soon_bytes = 0;
  unsigned* counters = nullptr;  // [kSegmentHandOvers], zero at first
  // The copy of the residual to its tensor, which needs a last hand-over: all blocks read the
  // tensor.
  int last_hand_over = -1;
  const float* residual_from = nullptr;
  float* residual_to = nullptr;
  SegmentShares residual_shares;

  SegmentStep step[kSegmentSteps];  // last: blocks keep a copy of the first `steps`
};

// The bytes of shared memory that are left to the ring beside x_bytes.
int segment_ring_bytes(int x_bytes);
// Must be called once per device, before start_segment().
void allow_segments();
void start_segment(const Segment& segment, int blocks, cudaStream_t stream);

}  // namespace skiff::cuda
