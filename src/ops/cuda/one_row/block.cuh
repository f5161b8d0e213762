// ops/cuda/one_row/block.cuh -- what all warps of a segment's block share: its part of every GEMV,
// the layout of shared memory, and the grid-wide barriers (hand-overs).
#pragma once
#include "ops/cuda/one_row/ring.cuh"
#include "ops/cuda/one_row/segment.h"

namespace skiff::cuda::segment {

// The consumer warps multiply; one producer warp fills the ring.
constexpr int kWarps = 8, kReaders = kWarps * 32, kThreads = kReaders + 32;
// The launch bound leaves some registers to the small kernel that comes next and may start early.
// With a tighter bound this kernel would spill (2 % of a step, measured).
constexpr int kThreadsWorth = 384;
constexpr int kGroup =
    4;  // weight rows that a warp multiplies at a time; gated: two gates, two ups
constexpr int kBatchValues = 128;  // weight rows whose partial sums are reduced together
constexpr int kPartialBytes = 2 * kBatchValues * kWarps * 4;
// Leaves shared memory for a small kernel on the same multiprocessor.
constexpr int kSegmentShared = 212 * 1024;
// A hand-over takes microseconds; a trap after seconds is better than a device that hangs.
constexpr int kMaxPolls = 1 << 22;

struct Span {
  int begin, end;
};
__device__ inline Span share_of(const SegmentShares& shares, int turn) {
  int block = blockIdx.x + turn;
  if (block >= static_cast<int>(gridDim.x)) block -= gridDim.x;
  const int begin = block * shares.each + min(block, shares.more);
  return {begin, begin + shares.each + (block < shares.more)};
}

// The groups of weight rows of a GEMV that belong to this block, in the order of the ring.
class Groups {
 public:
  __device__ explicit Groups(const SegmentProduct& p) : wide_(p.gated ? kGroup / 2 : kGroup) {
    const Span share = share_of(p.shares, p.turn);
    first_ = share.begin - wide_;
    stop_ = share.end;
  }
  __device__ bool next() { return (first_ += wide_) < stop_; }
  __device__ int first() const { return first_; }
  __device__ int count() const { return min(wide_, stop_ - first_); }

 private:
  int wide_, first_, stop_;
};

// The output features of a group.
struct Outputs {
  int first, count;
};

struct Shared {
  uint4 words[sizeof(Segment) / 16];  // a copy of the segment
  RingBarriers ring;
  int item_bytes[kRingItems];
  Outputs outputs[2][kBatchValues / kGroup];
  float squares[kWarps];
  unsigned before[kSegmentHandOvers];

  __device__ const Segment& segment() const { return *reinterpret_cast<const Segment*>(words); }
};

// Hand-overs. A counter's top bit flips when the last block arrives, and its other bits are zero
// again, so it need not be cleared. A block's writes are visible to the blocks that have waited.
__device__ inline unsigned* counter(const Segment& s, int which) {
  return s.counters + which * kCounterStride;
}
__device__ inline void poll(const Segment& s, const Shared& shared, int which) {
  const unsigned before = shared.before[which];
  unsigned now;
  int polls = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(now)
                 : "l"(counter(s, which))
                 : "memory");
    if (++polls == kMaxPolls) __trap();
  } while (((before ^ now) & 0x80000000u) == 0);
}

}  // namespace skiff::cuda::segment
