// ops/cuda/sampling/by_windows.cuh -- the passes over a row by way of two windows (windows.cuh):
// what lies above them is only added up, what lies within is listed.
#pragma once
#include <type_traits>

#include "ops/cuda/sampling/notes.cuh"

namespace skiff::cuda {

constexpr int kQueued = 16;          // a thread may meet fewer tokens than that in the windows
constexpr uint64_t kBroken = ~0ull;  // said instead of a mass: there is NaN

__device__ __forceinline__ int my_slot() {
  return block_rank() * kPassWarps + static_cast<int>(threadIdx.x) / 32;
}
// The sum of all warps' values, in every thread.
__device__ __forceinline__ uint64_t sum_of_slots(const uint64_t (&slots)[kSlots]) {
  static_assert(kSlots == 64);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum_units(slots[lane] + slots[lane + 32]);
}

// Mass of a row, by warps; `left` is that of the tokens that min_p leaves.
struct Masses {
  uint64_t all[kSlots], left[kSlots];
};

// Tells all blocks the mass of the piece; with kDrops also what lies at `least` or above.
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

// What a thread knows of its tokens, and where the next one in a window goes in its queue.
struct Sums {
  float over_cut, over_drawn;
  uint32_t n_over_cut, queue;

  // Token at + kOffset of the piece. Never a jump: in most warps some token is in a window.
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

// Queues of threads: places in the piece of tokens in the windows. A thread whose queue is full
// stays at its end, so the tokens of one more vector are written behind it, again and again.
using Queues = uint16_t[kQueued + kVector][kPassThreads];
static_assert(std::extent_v<Queues> > kQueued + kVector - 1);
constexpr int kMostHeld = 1 << 16;  // tokens of a piece: places have 16 bits

template <bool kCounted>
__device__ __forceinline__ void look_at_all(Sums& sums, const HeldPiece& piece, const Power& power,
                                            const Windows& windows) {
  const uint32_t full = sums.queue + kQueued * kQueueStep;
  piece.each_held([&](int at, float4 v) {
    // most tokens of most rows are less likely than what is kept
    if (fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)) < windows.cut.low) return;
    sums.add<kCounted, 0>(v.x, power.weight(v.x), windows, at);
    sums.add<kCounted, 1>(v.y, power.weight(v.y), windows, at);
    sums.add<kCounted, 2>(v.z, power.weight(v.z), windows, at);
    sums.add<kCounted, 3>(v.w, power.weight(v.w), windows, at);
    sums.queue = min(sums.queue, full);
  });
}

// Lists what lies in the windows and adds up what lies above them. Warps do not wait for each
// other.
__device__ inline void look_through(Queues& queues, Notes& notes, const HeldPiece& piece,
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
  __syncwarp();  // the queues are written
  for (uint32_t i = 0; i < most; ++i) {
    const uint32_t to = begin + i;
    if (i < n && to < kWarpRoom) {
      const int at = queues[i][threadIdx.x];
      notes.tokens[slot][to] = ranked(piece.logit(at), piece.id(at));
    }
  }
  if (lane < 31) return;
  notes.listed[slot] = most == kQueued ? kWarpRoom + 1 : upto;
  notes.over_cut[slot] = over_cut;
  notes.over_drawn[slot] = over_drawn;
  notes.n_over_cut[slot] = n_over_cut;
}

}  // namespace skiff::cuda
