// ops/cuda/sampling/line.cuh -- a histogram of a row's tokens over the blocks of a cluster, in the
// order of falling probability, and the search for the bin in which a goal is reached.
#pragma once
#include "ops/cuda/sampling/draw.cuh"
#include "ops/cuda/sampling/weight.cuh"

namespace skiff::cuda {

constexpr int kListed = 640;                                // capacity of a list of tokens
constexpr int kSought = 3;                                  // goals that one search looks for
constexpr int kMyBins = (kBins + kThreads - 1) / kThreads;  // neighbouring bins of a thread
static_assert(kBins % kBlocks == 0 && kBins % kMyBins == 0);

// The bin in which a goal is reached (-1: in none), and the tokens before it.
struct Found {
  int bin;
  Ahead ahead;
};

// A token, its weight and the tokens before it.
struct Place {
  int id;
  Ahead ahead;
  uint64_t weight;
  bool split_up;  // a finer histogram has overwritten the row's
};

// The histogram of one block. Sums of 64 bits are two words, because atomicAdd in shared memory is
// fast for single words only.
struct Counts {
  uint32_t low[kBins], high[kBins], count[kBins];
};
struct Lists {
  uint64_t mine[kListed];  // the tokens of this block, as ranked()
  uint64_t all[kListed], weight[kListed];
  uint64_t before[kListed];  // mass before each token that this block ranks
};

struct alignas(16) Shared {
  union {
    Counts counts;
    Lists lists;
  };
  uint64_t mass[kBins];  // the histogram of the whole row
  uint32_t count[kBins];
  // Written by each block to all.
  float best[kBlocks];
  uint32_t least[kBlocks], greatest[kBlocks], ties[kBlocks];
  uint32_t listed;
  int found[kSought];
  Ahead ahead[kSought], total;
  Place place;
};

// What all steps of a draw need.
template <bool kHeld>
struct Line {
  Piece<kHeld> piece;
  Scale scale;
  Shared& s;
  bool counted;  // whether goals need counts (top_k)
};

__device__ inline void clear(Counts& c) {
  auto* words = reinterpret_cast<uint32_t*>(&c);
  for (int i = static_cast<int>(threadIdx.x); i < 3 * kBins; i += kThreads) words[i] = 0;
  __syncthreads();
}

// Adds the tokens with in[i] to the histogram; all additions are in flight together.
template <int kN>
__device__ __forceinline__ void count_into(Counts& c, const bool (&in)[kN], const int (&bin)[kN],
                                           const uint32_t (&steps)[kN], bool counted) {
  uint32_t before[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) before[i] = add_if(in[i], c.low[bin[i]], steps[i]);
  if (counted) {
#pragma unroll
    for (int i = 0; i < kN; ++i)
      if (in[i]) atomicAdd(&c.count[bin[i]], 1u);
  }
  bool full[kN], any = false;
#pragma unroll
  for (int i = 0; i < kN; ++i) any |= full[i] = in[i] && before[i] + steps[i] < before[i];
  if (!any) return;
#pragma unroll
  for (int i = 0; i < kN; ++i)
    if (full[i]) atomicAdd(&c.high[bin[i]], 1u);
}

// Adds up the blocks' histograms; every block gets the row's. step(bin) is like step_of.
template <bool kHeld, class F>
__device__ void merge(Shared& s, bool counted, F step) {
  cluster_sync();
  const int own = kBins / blocks_of<kHeld>();
  for (int i = static_cast<int>(threadIdx.x); i < own; i += kThreads) {
    const int bin = block_rank() * own + i;
    uint64_t mass = 0;
    uint32_t count = 0;
#pragma unroll
    for (int p = 0; p < blocks_of<kHeld>(); ++p) {
      const Counts& c = of_peer(s.counts, p);
      mass += uint64_t{c.high[bin]} << 32 | c.low[bin];
      if (counted) count += c.count[bin];
    }
    mass <<= step(bin);
#pragma unroll
    for (int p = 0; p < blocks_of<kHeld>(); ++p) {
      of_peer(s.mass[bin], p) = mass;
      if (counted) of_peer(s.count[bin], p) = count;
    }
  }
  cluster_sync();
}

// Searches for bins. All threads construct it, because the constructor has barriers.
class Search {
 public:
  __device__ Search(Shared& shared, bool counted, Ahead start) : s_(shared) {
    if (threadIdx.x < kSought) s_.found[threadIdx.x] = -1;
    const int first = kMyBins * static_cast<int>(threadIdx.x);
    Ahead mine;
#pragma unroll
    for (int i = 0; i < kMyBins; ++i) {
      if (first + i >= kBins) continue;
      mass_[i] = s_.mass[first + i];
      mine.mass += mass_[i];
      if (!counted) continue;
      count_[i] = s_.count[first + i];
      mine.count += count_[i];
    }
    before_.count = start.count + (counted ? sum_before(mine.count) : 0);
    before_.mass = start.mass + sum_before(mine.mass);
    if (threadIdx.x == kThreads - 1)
      s_.total = {before_.count + mine.count, before_.mass + mine.mass};
    __syncthreads();
  }
  __device__ Ahead total() const { return s_.total; }
  // The result is found(which), after the next barrier.
  __device__ void seek(int which, const Goal& goal) {
    const int first = kMyBins * static_cast<int>(threadIdx.x);
    Ahead before = before_;
#pragma unroll
    for (int i = 0; i < kMyBins; ++i) {
      const Ahead after{before.count + count_[i], before.mass + mass_[i]};
      if (goal.between(before, after)) {
        s_.found[which] = first + i;
        s_.ahead[which] = before;
      }
      before = after;
    }
  }
  __device__ Found found(int which) const { return {s_.found[which], s_.ahead[which]}; }

 private:
  Shared& s_;
  Ahead before_;
  uint64_t mass_[kMyBins] = {};
  uint32_t count_[kMyBins] = {};
};

// The first bin in which the goal is reached.
__device__ inline Found find_bin(Shared& s, bool counted, const Goal& goal, Ahead start) {
  Search search(s, counted, start);
  search.seek(0, goal);
  __syncthreads();
  const Found found = search.found(0);
  __syncthreads();
  return found;
}

}  // namespace skiff::cuda
