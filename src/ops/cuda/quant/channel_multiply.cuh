// ops/cuda/quant/channel_multiply.cuh -- the loads and the main loop of the GEMM of
// float8_channels.h. Sums stay in the tensor cores' registers from a part's first chunk to its
// last.
#pragma once
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_float8.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/channel_args.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::channels {

// One thread copies weights, which no kernel writes: before griddepcontrol.wait as far as the ring
// has room.
template <class Ring, bool kGated>
__device__ void load_weights(const Ring& ring, const CUtensorMap& map, const ChannelPart& part) {
  let_next_start();
  streamed::RingTurn<Ring::kStages> turn = {0, 1};
  for (int c = part.begin; c < part.end; ++c, turn.advance()) {
    barrier_wait(ring.empty + 8 * turn.stage, turn.parity);
    const uint32_t barrier = ring.full + 8 * turn.stage;
    barrier_expect(barrier, Ring::kWeightBytes);
    const uint32_t to = ring.weights(turn.stage);
    if constexpr (kGated)
      copy_tile(to, map, barrier, c * (kColumns / 2), 0, 0, part.tile * (kTileRows / 16), 0,
                Keep::kFirstToGo);
    else
      copy_tile(to, map, barrier, c * (kColumns / 2), part.tile * kTileRows, 0, 0, 0,
                Keep::kFirstToGo);
  }
}

// One thread copies rows of x: whole boxes, as many as have rows.
template <class Ring>
__device__ void load_rows(const Ring& ring, const CUtensorMap& map, const ChannelPart& part) {
  constexpr int kBox = streamed::full_box_rows(Ring::kRows), kBoxBytes = kBox * kColumns;
  wait_for_previous();
  const int boxes = (part.rows + kBox - 1) / kBox;
  streamed::RingTurn<Ring::kStages> turn = {0, 1};
  for (int c = part.begin; c < part.end; ++c, turn.advance()) {
    barrier_wait(ring.empty + 8 * turn.stage, turn.parity);
    const uint32_t barrier = ring.full + 8 * turn.stage;
    barrier_expect(barrier, boxes * kBoxBytes);
    for (int i = 0; i < boxes; ++i)
      copy_tile(ring.rows(turn.stage) + i * kBoxBytes, map, barrier, c * (kColumns / 2),
                part.first + i * kBox);
  }
}

// sum = the products of the part's chunks; wgmma.cuh says which thread holds which. A warpgroup has
// 64 of the weight rows.
template <class Ring>
__device__ __forceinline__ void multiply(float (&sum)[Ring::kRows / 2], const Ring& ring,
                                         const ChannelPart& part) {
  const auto group = static_cast<uint32_t>(threadIdx.x / 128);
  const uint64_t weights = wgmma_operand(ring.weights(0)), rows = wgmma_operand(ring.rows(0));
  const auto high = static_cast<uint32_t>(weights >> 32);  // both operands have this word
  const uint32_t m = kept(static_cast<uint32_t>(weights) + group * (64 * kColumns >> 4));
  const uint32_t n = kept(static_cast<uint32_t>(rows));
  const auto operand = [&](uint32_t low, int k) {
    constexpr auto kStep = static_cast<uint32_t>(kWgmmaStep);
    return static_cast<uint64_t>(high) << 32 | (low + k * kStep);
  };
  const auto release = [&](int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty + 8 * stage);
  };
  streamed::RingTurn<Ring::kStages> turn;
  int before = -1;
  for (int c = part.begin; c < part.end; ++c, turn.advance()) {
    barrier_wait(ring.full + 8 * turn.stage, turn.parity);
    const uint32_t at = turn.stage * (Ring::kStageBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kColumns / 32; ++k)
      wgmma_float8<Ring::kRows>(sum, operand(m + at, k), operand(n + at, k),
                                c > part.begin || k > 0);
    wgmma_commit();
    if (before >= 0) {
      wgmma_wait<1>();
      release(before);
    }
    before = turn.stage;
  }
  wgmma_wait<0>();
  settle(sum);
}

}  // namespace skiff::cuda::channels
