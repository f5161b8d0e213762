// ops/cuda/one_row/segment.h -- what lies between one layer's attention and the next, for one row,
// as one kernel: products and norms ("steps").
//
// With one row a step is reading weights, and each kernel of its own lets the memory rest while the
// last block of the one before ends. Here a block on each multiprocessor knows which weight rows it
// will read in every step, and one of its warps fetches them in that order into a ring in shared
// memory, as far ahead as the ring holds: past the end of a step, and before the kernel's
// predecessor has ended. The other warps multiply (tensor cores, f32 sums), and between
// steps the blocks hand their outputs over through the second-level cache: a counter that all
// blocks count up, and wait for.
//
// Mixtures of experts stay outside: they need eight hand-overs a layer, and these cost more than
// kernels of their own (docs/performance_cuda_products.md).
//
// Results do not depend on the number of blocks: an output is a sum over slices of 256 inputs, in
// an order that the inner dimension alone fixes.
//
// No deadlock: blocks wait for each other, so all must run at once. There are as many as
// multiprocessors, each fits on an empty one, and none waits for another before its predecessor in
// the stream has ended (wait_for_previous()); what runs then besides are kernels after this one,
// and these start only once all blocks of this one run (let_next_start()). So at one time only one
// stream of a device may have segments on their way.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "arch/spec.h"

namespace skiff::cuda {

constexpr int kSegmentSteps = 6;
constexpr int kSegmentHandOvers = kSegmentSteps + 1;
constexpr int kUnit = 256;           // inputs that a warp takes of a weight row at a time
constexpr int kMostUnits = 10;       // of a weight row in an item of the ring
constexpr int kMostNormCols = 8192;  // which every block keeps in registers
constexpr int kCounterStride = 32;   // unsigned; counters lie on lines of their own

// How blocks share out a number of things: `each`, and one more for the first `more` blocks.
struct SegmentShares {
  int each = 0, more = 0;
};

// out[feature] = weight[feature] * x; where `gated`, activated, times the same of the second half.
struct SegmentProduct {
  const __nv_bfloat16* weight = nullptr;  // [features, twice if gated][256 * units]
  const float* bias = nullptr;            // may be null
  bool gated = false;
  Act act = Act::kSilu;
  int features = 0;
  int units = 0, item_units = 0;
  SegmentShares shares;  // of features
  int turn = 0;          // which block comes first: whole features do not share out evenly
  bool f32 = false;      // out and copy are f32, not bf16
  void* out = nullptr;
  void* copy = nullptr;  // the same for steps to come; may be null
};

enum class SegmentInput { kKeep, kRow, kNorm };

// What x is, then a product.
struct alignas(16) SegmentStep {
  int wait = -1;    // for this hand-over, first of all
  int arrive = -1;  // at this one, in the end
  SegmentInput input = SegmentInput::kKeep;
  int cols = 0;                        // of the input
  SegmentShares shares;                // of the columns, four at a time
  const __nv_bfloat16* row = nullptr;  // kRow
  // kNorm: residual + delta goes to residual_out where that is not null, its norm to x and out.
  const float* residual = nullptr;
  bool residual_early = false;  // it is there before `wait` is over
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
  // What the next segment will begin with, [features][soon_in], and how much of each block's share
  // is fetched to the second-level cache before this one ends.
  const __nv_bfloat16* soon = nullptr;
  SegmentShares soon_shares;
  int soon_in = 0, soon_bytes = 0;
  unsigned* counters = nullptr;  // [kSegmentHandOvers], zero at first
  // The residual, where only a hand-over at the very end tells that all have read it.
  int last_hand_over = -1;
  const float* residual_from = nullptr;
  float* residual_to = nullptr;
  SegmentShares residual_shares;

  SegmentStep step[kSegmentSteps];  // last: blocks keep a copy of the first `steps`
};

// Shared memory that a ring may have beside x_bytes.
int segment_ring_bytes(int x_bytes);
void allow_segments();  // once a device
void start_segment(const Segment& segment, int blocks, cudaStream_t stream);

}  // namespace skiff::cuda
