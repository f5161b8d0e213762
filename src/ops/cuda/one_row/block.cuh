// ops/cuda/one_row/block.cuh -- what all warps of a block of a segment know: its share of every
// product, what lies in shared memory, and how blocks hand over to each other.
#pragma once
#include "ops/cuda/one_row/ring.cuh"
#include "ops/cuda/one_row/segment.h"

namespace skiff::cuda::segment {

// Warps that multiply; then one that fills the ring.
constexpr int kWarps = 8, kReaders = kWarps * 32, kThreads = kReaders + 32;
// Some registers are left over: the small kernel that comes next, which may start early,
// needs them. With fewer than these this one would spill (2 % of a step, measured).
constexpr int kThreadsWorth = 384;
constexpr int kGroup = 4;  // weight rows that a warp meets with one x; gated: two gates, two ups
constexpr int kBatchValues = 128;  // sums of weight rows that are finished together
constexpr int kPartialBytes = 2 * kBatchValues * kWarps * 4;
// As much as leaves small kernels a corner to run in.
constexpr int kSegmentShared = 212 * 1024;
// A hand-over takes microseconds: better no answer than a device that never comes back.
constexpr int kMostPolls = 1 << 22;

struct Span {
  int begin, end;
};
__device__ inline Span share_of(const SegmentShares& shares, int turn) {
  int block = blockIdx.x + turn;
  if (block >= static_cast<int>(gridDim.x)) block -= gridDim.x;
  const int begin = block * shares.each + min(block, shares.more);
  return {begin, begin + shares.each + (block < shares.more)};
}

// The groups of weight rows that this block has in a product, in the order of the ring.
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

struct Outputs {  // of a group
  int first, count;
};

struct Shared {
  uint4 words[sizeof(Segment) / 16];  // of the segment, where all find it fast
  RingBarriers ring;
  int item_bytes[kRingItems];
  Outputs outputs[2][kBatchValues / kGroup];
  float squares[kWarps];
  unsigned before[kSegmentHandOvers];

  __device__ const Segment& segment() const { return *reinterpret_cast<const Segment*>(words); }
};

// Hand-overs. A counter's top bit turns when the last block arrives, and the rest is zero again:
// nobody has to clear it. What a block has written is seen by those who waited for it.
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
    if (++polls == kMostPolls) __trap();
  } while (((before ^ now) & 0x80000000u) == 0);
}

}  // namespace skiff::cuda::segment
