// ops/cuda/sampling/by_windows.cuh -- the pass over a row by two windows (windows.cuh): the mass
// above each window is summed, and the tokens within are listed as candidates.
#pragma once
#include <type_traits>

#include "ops/cuda/sampling/pass_result.cuh"

namespace skiff::cuda {

constexpr int kQueued = 16;          // a thread that finds as many candidates has lost some
constexpr uint64_t kBroken = ~0ull;  // takes the place of a mass where there is NaN

__device__ __forceinline__ int my_slot() {
  return block_rank() * kPassWarps + static_cast<int>(threadIdx.x) / 32;
}
// The sum over all slots, in every thread.
__device__ __forceinline__ uint64_t sum_of_slots(const uint64_t (&slots)[kSlots]) {
  static_assert(kSlots == 64);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum_units(slots[lane] + slots[lane + 32]);
}

// The mass of a row, by warps; `left` is that of the tokens that min_p leaves.
struct Masses {
  uint64_t all[kSlots], left[kSlots];
};

// Writes the mass of the piece to all blocks; with kDrops also the mass of logits from `least` on.
template <bool kDrops>
__device__ __forceinline__ void weigh(Masses& masses, const HeldPiece& piece, const Power& power,
                                      float least) {
  float mass = 0, left = 0;
  const auto add = [&](float v) {
    const float weight = power.weight(v);
    mass += weight;
    if (kDrops) left += v >= least ? weight : 0;
  };
  piece.each_held([&](int, float4 v) {
    add(v.x);
    add(v.y);
    add(v.z);
    add(v.w);
  });
  const bool broken = __any_sync(kAllLanes, mass != mass);
  const uint64_t sum = warp_sum_units(units_of(mass)),
                 sum_left = kDrops ? warp_sum_units(units_of(left)) : 0;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= kBlocks) return;
  of_peer(masses.all[my_slot()], lane) = broken ? kBroken : sum;
  if (kDrops) of_peer(masses.left[my_slot()], lane) = sum_left;
}

constexpr uint32_t kQueueStep = kPassThreads * sizeof(uint16_t);

// The sums of a thread, and the address of the next entry in its queue of candidates.
struct Sums {
  float over_cut, over_drawn;
  uint32_t n_over_cut, queue;

  // Adds token at + kOffset of the piece. It has no branch: in most warps some token is a
  // candidate.
  template <bool kCounted, int kOffset>
  __device__ __forceinline__ void add(float v, float weight, const Windows& w, int at) {
    if (kCounted) n_over_cut += v > w.cut.high;
    asm volatile(
        "{ .reg .pred over_cut, over_drawn, in, in_drawn; .reg .u32 place;\n"
        "setp.gt.f32 over_cut, %3, %5; setp.gt.f32 over_drawn, %3, %7;\n"
        "@over_cut add.f32 %0, %0, %4; @over_drawn add.f32 %1, %1, %4;\n"
        "setp.ge.and.f32 in, %3, %6, !over_cut; setp.ge.and.f32 in_drawn, %3, %8, !over_drawn;\n"
        "or.pred in, in, in_drawn;\n"
        "add.u32 place, %9, %10;\n"
        "@in st.shared.u16 [%2], place; @in add.u32 %2, %2, %11; }"
        : "+f"(over_cut), "+f"(over_drawn), "+r"(queue)
        : "f"(v), "f"(weight), "f"(w.cut.high), "f"(w.cut.low), "f"(w.drawn.high), "f"(w.drawn.low),
          "r"(at), "n"(kOffset), "n"(kQueueStep));
  }
};

// Each thread's queue of candidates, as indices into the piece. A thread whose queue is full
// overwrites the last entries, which have room for the tokens of one more vector.
using Queues = uint16_t[kQueued + kVector][kPassThreads];
static_assert(std::extent_v<Queues> > kQueued + kVector - 1);
constexpr int kMaxHeld = 1 << 16;  // tokens of a piece: indices have 16 bits

template <bool kCounted>
__device__ __forceinline__ void look_at_all(Sums& sums, const HeldPiece& piece, const Power& power,
                                            const Windows& windows) {
  const uint32_t full = sums.queue + kQueued * kQueueStep;
  piece.each_held([&](int at, float4 v) {
    // Most tokens of most rows lie below the windows.
    if (fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)) < windows.cut.low) return;
    sums.add<kCounted, 0>(v.x, power.weight(v.x), windows, at);
    sums.add<kCounted, 1>(v.y, power.weight(v.y), windows, at);
    sums.add<kCounted, 2>(v.z, power.weight(v.z), windows, at);
    sums.add<kCounted, 3>(v.w, power.weight(v.w), windows, at);
    sums.queue = min(sums.queue, full);
  });
}

// Lists the tokens in the windows and sums the mass above them. Warps do not wait for each other.
__device__ inline void look_through(Queues& queues, PassResult& pass, const HeldPiece& piece,
                                    const Power& power, const Windows& windows, bool counted) {
  Sums sums{0, 0, 0, static_cast<uint32_t>(__cvta_generic_to_shared(&queues[0][threadIdx.x]))};
  const uint32_t first = sums.queue;
  if (counted) {
    look_at_all<true>(sums, piece, power, windows);
  } else {
    look_at_all<false>(sums, piece, power, windows);
  }
  const uint64_t over_cut = warp_sum_units(units_of(sums.over_cut)),
                 over_drawn = warp_sum_units(units_of(sums.over_drawn));
  const uint32_t n_over_cut = __reduce_add_sync(kAllLanes, sums.n_over_cut);

  const uint32_t n = (sums.queue - first) / kQueueStep;
  const int lane = static_cast<int>(threadIdx.x) % 32, slot = my_slot();
  const uint32_t upto = warp_prefix_sum(n, lane);
  const uint32_t most = __reduce_max_sync(kAllLanes, n);
  const uint32_t begin = upto - n;
  __syncwarp();  // all lanes have written their queues
  for (uint32_t i = 0; i < most; ++i) {
    const uint32_t to = begin + i;
    if (i < n && to < kWarpRoom) {
      const int at = queues[i][threadIdx.x];
      pass.tokens[slot][to] = ranked(piece.logit(at), piece.id(at));
    }
  }
  if (lane < 31) return;
  pass.listed[slot] = most == kQueued ? kWarpRoom + 1 : upto;
  pass.over_cut[slot] = over_cut;
  pass.over_drawn[slot] = over_drawn;
  pass.n_over_cut[slot] = n_over_cut;
}

}  // namespace skiff::cuda
