// ops/cuda/sampling/line.cuh -- tokens of a row on the line of falling probability: a histogram of
// them over a cluster of blocks, and the bin in which a place on the line falls.
#pragma once
#include "ops/cuda/sampling/row.cuh"
#include "ops/cuda/sampling/weight.cuh"

namespace skiff::cuda {

constexpr int kListed = 768;                                // tokens that are ranked at once
constexpr int kOwnBins = kBins / kBlocks;                   // that a block adds up for all
constexpr int kMyBins = (kBins + kThreads - 1) / kThreads;  // of a thread, neighbours
static_assert(kBins % kBlocks == 0 && kBins % kMyBins == 0 && kOwnBins <= kThreads);

// How much lies ahead of something on the line.
struct Ahead {
  uint32_t count = 0;
  uint64_t mass = 0;
};

// Reached by the first token at which `count` tokens or `mass` have been passed, it included; with
// `beyond`, mass must be passed and not only be reached.
struct Goal {
  uint32_t count;
  uint64_t mass;
  bool beyond;
  __device__ bool reached(const Ahead& a) const {
    return a.count >= count || (beyond ? a.mass > mass : a.mass >= mass);
  }
  __device__ bool between(const Ahead& before, const Ahead& after) const {
    return reached(after) && !reached(before);
  }
};

// A token and what lies ahead of it; `weight` is its own.
struct Place {
  int id;
  Ahead ahead;
  uint64_t weight;
  bool split_up;  // finding it, the row's histogram had to give way to a finer one
};

// One block's tokens. Sums have 64 bits in two words: shared memory adds only single words fast.
struct Counts {
  uint32_t low[kBins], high[kBins], count[kBins];
};
struct Lists {
  uint64_t mine[kListed];  // ranked() tokens of this block
  uint64_t all[kListed], weight[kListed];
};

struct alignas(16) Shared {
  union {
    Counts counts;
    Lists lists;
  };
  uint64_t mass[kBins];  // of the whole row
  uint32_t count[kBins];
  // Told by each block to all.
  uint64_t dropped[kBlocks];
  float best[kBlocks];
  uint32_t least[kBlocks], greatest[kBlocks], ties[kBlocks];
  uint32_t listed;
  int found;
  Ahead ahead;
  Place place;
};

// What all steps of a draw need.
template <bool kHeld>
struct Line {
  Piece<kHeld> piece;
  Scale scale;
  Shared& s;
  bool counted;  // goals have counts
};

__device__ inline void clear(Counts& c) {
  auto* words = reinterpret_cast<uint32_t*>(&c);
  for (int i = static_cast<int>(threadIdx.x); i < 3 * kBins; i += kThreads) words[i] = 0;
  __syncthreads();
}

__device__ __forceinline__ void count_into(Counts& c, int bin, uint32_t steps, bool counted) {
  const uint32_t before = atomicAdd(&c.low[bin], steps);
  if (before + steps < before) atomicAdd(&c.high[bin], 1u);
  if (counted) atomicAdd(&c.count[bin], 1u);
}

// The blocks' counts become mass and count of the row in every block. step(bin): as step_of.
template <class F>
__device__ void merge(Shared& s, bool counted, F step) {
  cluster_sync();
  const int bin = block_rank() * kOwnBins + static_cast<int>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) < kOwnBins) {
    uint64_t mass = 0;
    uint32_t count = 0;
#pragma unroll
    for (int p = 0; p < kBlocks; ++p) {
      const Counts& c = of_peer(s.counts, p);
      mass += uint64_t{c.high[bin]} << 32 | c.low[bin];
      if (counted) count += c.count[bin];
    }
    mass <<= step(bin);
#pragma unroll
    for (int p = 0; p < kBlocks; ++p) {
      of_peer(s.mass[bin], p) = mass;
      if (counted) of_peer(s.count[bin], p) = count;
    }
  }
  cluster_sync();
}

// Sum over all bins before this thread's first.
__device__ inline Ahead before_mine(const Shared& s, bool counted, Ahead start) {
  const int first = kMyBins * static_cast<int>(threadIdx.x);
  Ahead mine;
  for (int b = first; b < first + kMyBins && b < kBins; ++b) {
    mine.mass += s.mass[b];
    if (counted) mine.count += s.count[b];
  }
  const uint32_t count = counted ? sum_before(mine.count) : 0;
  return {start.count + count, start.mass + sum_before(mine.mass)};
}

// The first bin in which the goal is reached, and what lies ahead of that bin; -1 if in none.
__device__ inline int find_bin(Shared& s, bool counted, const Goal& goal, Ahead start,
                               Ahead& ahead) {
  if (threadIdx.x == 0) s.found = -1;
  Ahead before = before_mine(s, counted, start);
  const int first = kMyBins * static_cast<int>(threadIdx.x);
  for (int b = first; b < first + kMyBins && b < kBins; ++b) {
    const Ahead after{before.count + (counted ? s.count[b] : 0), before.mass + s.mass[b]};
    if (goal.between(before, after)) {
      s.found = b;
      s.ahead = before;
    }
    before = after;
  }
  __syncthreads();
  ahead = s.ahead;
  const int found = s.found;
  __syncthreads();
  return found;
}

}  // namespace skiff::cuda
