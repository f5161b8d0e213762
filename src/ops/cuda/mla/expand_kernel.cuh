// ops/cuda/mla/expand_kernel.cuh -- attention of many rows to keys of 128 + 64 columns and values
// of 128. A persistent block takes a tile of 128 rows of one head after the other, the next one
// that no block has, and walks over their context in tiles of 128 positions; the 64 rotated columns
// of a key are those of all heads. A third warpgroup copies; it is already at the next tile of rows
// while this one's results are written. The two that compute have 64 rows each and the schedule of
// attention/prefill_kernel.cuh, whose arithmetic they share.
#pragma once
#include "ops/cuda/attention/prefill_kernel.cuh"
#include "ops/cuda/mla/expand_kernels.h"

namespace skiff::cuda::expand {

using prefill::kGroups, prefill::kGroupThreads, prefill::kRowsOfGroup, prefill::kThreads;
using prefill::kTurnBarrier, prefill::Ring, prefill::Softmax;

constexpr int kKeyDim = kExpandNope + kExpandRope, kValueDim = kExpandValue, kStages = 2;
constexpr int kPanelBytes = kExpandTile * 128;  // 64 columns of a tile
static_assert(kKeys<kKeyDim> == kExpandTile && kKeys<kValueDim> == kExpandTile &&
              kPrefillRows == kExpandTile);

struct Shared {
  uint8_t q[kExpandTile * kKeyDim * 2];
  uint8_t k[kStages][kExpandTile * kKeyDim * 2];
  uint8_t v[kStages][kExpandTile * kValueDim * 2];
  int item;  // whose queries these are; -1: none is left
  uint64_t q_full, q_empty;
  uint64_t k_full[kStages], k_empty[kStages];
  uint64_t v_full[kStages], v_empty[kStages];
};

// One item: a tile of rows of a head. Heads come in sections, few enough that several blocks read
// the keys and values of one at the same time; in a section all heads' tiles with the longest
// contexts come first.
struct Work {
  int head, row, rows;  // `row` indexes the batch; `head` those of this launch
  int at, context;      // where the context begins, and that of the last row
  int end;              // tiles of keys [0, end)

  __device__ Work(const ExpandAttendArgs& p, int item) {
    const int in_section = p.pass.tiles * p.section, first_head = item / in_section * p.section;
    const int heads = min(p.section, p.heads - first_head), place = item % in_section;
    const ExpandTile tile = p.pass.tile[place / heads];
    const ExpandSpan& span = p.pass.spans.span[tile.span];
    const int first = tile.tile * kExpandTile;
    head = first_head + place % heads;
    row = span.row + first;
    rows = min(kExpandTile, span.rows - first);
    at = span.at;
    context = span.kv_len - span.rows + first + rows;
    end = (context + kExpandTile - 1) / kExpandTile;
  }
};

// The copying thread, which takes one item after the other for its block.
__device__ inline void copy_tiles(const ExpandAttendArgs& p, const ExpandMaps& maps,
                                  Shared& shared) {
  Ring<kStages> k_ring, v_ring;
  const auto copy_keys = [&](const Work& work, int tile) {
    const int i = k_ring.stage, row = work.at + tile * kExpandTile;
    const uint32_t full = shared_address(&shared.k_full[i]), to = shared_address(shared.k[i]);
    barrier_wait(shared_address(&shared.k_empty[i]), k_ring.phase ^ 1);
    barrier_expect(full, kExpandTile * kKeyDim * 2);
    const int y = work.head * p.pass.spans.positions + row;
    copy_tile(to, maps.k, full, 0, y);
    copy_tile(to + kPanelBytes, maps.k, full, 64, y);
    copy_tile(to + 2 * kPanelBytes, maps.rope, full, 0, row);
    k_ring.advance();
  };
  const auto copy_values = [&](const Work& work, int tile) {
    const int i = v_ring.stage;
    const uint32_t full = shared_address(&shared.v_full[i]), to = shared_address(shared.v[i]);
    barrier_wait(shared_address(&shared.v_empty[i]), v_ring.phase ^ 1);
    barrier_expect(full, kExpandTile * kValueDim * 2);
    const int y = work.head * p.pass.spans.positions + work.at + tile * kExpandTile;
    copy_tile(to, maps.v, full, 0, y);
    copy_tile(to + kPanelBytes, maps.v, full, 64, y);
    v_ring.advance();
  };
  const int items = p.pass.tiles * p.heads;
  uint32_t q_phase = 0;
  for (int item = static_cast<int>(blockIdx.x); item < items;) {
    const Work work(p, item);
    const uint32_t full = shared_address(&shared.q_full), to = shared_address(shared.q);
    barrier_wait(shared_address(&shared.q_empty), q_phase ^ 1);
    q_phase ^= 1;
    shared.item = item;
    barrier_expect(full, kExpandTile * kKeyDim * 2);
#pragma unroll
    for (int c = 0; c < kKeyDim / 64; ++c)
      copy_tile(to + c * kPanelBytes, maps.q, full, (p.first_head + work.head) * kKeyDim + c * 64,
                work.row);
    // Loads follow the order of use: keys are one tile ahead of values.
    copy_keys(work, 0);
    for (int tile = 0; tile < work.end; ++tile) {
      if (tile + 1 < work.end) {
        copy_keys(work, tile + 1);
      } else {
        // No earlier: a block that takes an item long before it can begin keeps it from others.
        item = static_cast<int>(gridDim.x) + atomicAdd(p.next, 1);
      }
      copy_values(work, tile);
    }
  }
  barrier_wait(shared_address(&shared.q_empty), q_phase ^ 1);
  shared.item = -1;
  barrier_arrive(shared_address(&shared.q_full));
}

// Lanes exchange columns in pairs, so that each writes 8 bytes, and four of them 32.
__device__ __forceinline__ void write_rows(const ExpandAttendArgs& p, const Work& work, int group,
                                           const float (&o)[kValueDim / 2],
                                           const Total (&totals)[2]) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const bool odd = lane % 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = group * kRowsOfGroup + thread / 32 * 16 + lane / 4 + 8 * half;
    const float scale = inverse(totals[half].sum);
    auto* to = static_cast<__nv_bfloat16*>(p.out) + int64_t{work.row + i} * p.out_stride +
               (p.first_head + work.head) * kValueDim + (odd ? 8 : 0) + lane % 4 / 2 * 4;
#pragma unroll
    for (int n = 0; n < kValueDim / 8; n += 2) {
      const auto packed = [&](int m) {
        return pack_bf16(o[m * 4 + 2 * half] * scale, o[m * 4 + 2 * half + 1] * scale);
      };
      const uint32_t a = packed(n), b = packed(n + 1);
      const uint32_t other = __shfl_xor_sync(kAllLanes, odd ? a : b, 1);
      const uint2 both = odd ? uint2{other, b} : uint2{a, other};
      if (i < work.rows) *reinterpret_cast<uint2*>(to + n * 8) = both;
    }
  }
}

// What a warpgroup keeps from one item to the next.
struct Rings {
  Ring<kStages> keys, values;
};

__device__ __forceinline__ void attend(const ExpandAttendArgs& p, const Work& work, int group,
                                       Rings& rings, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int other = 1 - group, all_see = work.context - work.rows;
  Ring<kStages>&keys = rings.keys, &values = rings.values;
  Softmax softmax;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = group * kRowsOfGroup + thread / 32 * 16 + lane / 4 + 8 * half;
    softmax.limit[half] = all_see + min(i, work.rows - 1);
  }
  const uint64_t q = wgmma_operand(shared_address(shared.q) + group * kRowsOfGroup * 128);
  // Whether a tile needs a mask, because some row does not see all of it.
  const auto edge = [&](int tile) { return (tile + 1) * kExpandTile - 1 > all_see; };
  float s[kExpandTile / 2], o[kValueDim / 2];
  uint32_t weights[kExpandTile / 16][4];
#pragma unroll
  for (float& x : o) x = 0;

  named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
  barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  wgmma_fence();
  prefill::multiply_keys<kKeyDim>(s, q, shared_address(shared.k[keys.stage]));
  wgmma_commit();
  named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
  wgmma_wait<0>();
  settle(s);
  if (thread == 0) {
    barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
    if (work.end == 1) barrier_arrive(shared_address(&shared.q_empty));
  }
  keys.advance();
  prefill::step(softmax, s, p.scale_log2, 0, edge(0), 0);
  prefill::pack(weights, s);

  if (work.end > 1) barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  for (int tile = 1; tile < work.end; ++tile) {
    named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
    wgmma_fence();
    prefill::multiply_keys<kKeyDim>(s, q, shared_address(shared.k[keys.stage]));
    wgmma_commit();
    barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
    prefill::multiply_values<kValueDim>(o, weights, shared_address(shared.v[values.stage]));
    wgmma_commit();
    named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
    wgmma_wait<1>();
    settle(s);
    if (thread == 0) {
      barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
      if (tile + 1 == work.end) barrier_arrive(shared_address(&shared.q_empty));
    }
    keys.advance();
    prefill::step(softmax, s, p.scale_log2, tile * kExpandTile, edge(tile), 0);
    // The loop inside this wait also keeps the assembler from moving the softmax past the next one.
    if (tile + 1 < work.end) barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
    wgmma_wait<0>();
    settle(o);
    settle(weights);
    if (thread == 0) barrier_arrive(shared_address(&shared.v_empty[values.stage]));
    values.advance();
    prefill::pack(weights, s);
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) o[i] *= softmax.keep[i / 2 % 2];
  }
  barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
  wgmma_fence();
  prefill::multiply_values<kValueDim>(o, weights, shared_address(shared.v[values.stage]));
  wgmma_commit();
  wgmma_wait<0>();
  settle(o);
  if (thread == 0) barrier_arrive(shared_address(&shared.v_empty[values.stage]));
  values.advance();
  const Total totals[2] = {prefill::total(softmax, 0), prefill::total(softmax, 1)};
  write_rows(p, work, group, o, totals);
}

// A warpgroup's items. All its threads know an item before its first turn, and `item` changes only
// after the last one, when the queries are no longer needed.
__device__ __forceinline__ void attend_all(const ExpandAttendArgs& p, int group, Shared& shared) {
  Rings rings;
  if (group == 1) named_arrive(kTurnBarrier, kThreads - kGroupThreads);
  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    barrier_wait(shared_address(&shared.q_full), q_phase);
    const int item = *const_cast<volatile int*>(&shared.item);
    if (item < 0) break;
    attend(p, Work(p, item), group, rings, shared);
  }
  // Consumes the last turn.
  if (group == 0) named_sync(kTurnBarrier, kThreads - kGroupThreads);
}

}  // namespace skiff::cuda::expand
