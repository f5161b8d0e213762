// ops/cuda/attention/prefill_kernel.cuh -- attention of many rows. A block takes 128 packed rows
// (row and head of a group) of one kv head and walks over their context in tiles. A
// third warpgroup fills the tiles. Two consumer warpgroups have 64 rows each and take turns at the
// tensor cores, so that the softmax of one hides behind the GEMMs of the other; within each, the
// scores of the next tile are computed while the values of this one are added. The schedule is that
// of Shah et al. 2024, "FlashAttention-3".
#pragma once
#include <cuda_bf16.h>

#include <algorithm>

#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/key_tiles.cuh"
#include "ops/cuda/attention/prefill_fold.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::prefill {

constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kRowsOfGroup = kPrefillRows / kGroups;
// Named barriers: each warpgroup has one for itself and one for its turn at the tensor cores.
constexpr int kOwnBarrier = 1, kTurnBarrier = 3;

// What shared memory holds: of heads of 128 one less where it holds folds.
template <int kDim, bool kPieces>
constexpr int kStages = kDim == 64                ? 5
                        : kDim == 128 && !kPieces ? 3
                                                  : 2;

template <int kDim, bool kPieces>
struct Shared {
  static constexpr int kRing = kStages<kDim, kPieces>;
  uint8_t q[kPrefillRows * kDim * 2];  // afterwards the result
  uint8_t k[kRing][kKeys<kDim> * kDim * 2];
  uint8_t v[kRing][kKeys<kDim> * kDim * 2];
  [[no_unique_address]] FoldRoom<kDim, kPieces> folds;
  uint64_t k_full[kRing], k_empty[kRing];
  uint64_t v_full[kRing], v_empty[kRing];
};

// The work of a block, and the context that its rows see.
struct Work {
  PrefillTile tile;
  int head, seen, first, end;  // tiles of keys [first, end)

  __device__ Work(const PrefillArgs& p, int keys) {
    const int heads = p.args.cache.kv_heads;
    tile = p.tiles[static_cast<int>(blockIdx.x) / heads];
    head = static_cast<int>(blockIdx.x) % heads;
    seen = p.args.window > 0 ? max(0, tile.kv_len - tile.rows + 1 - p.args.window) : 0;
    first = seen / keys;
    end = (tile.kv_len + keys - 1) / keys;
  }
};

// A stage of a ring, and the parity of its barriers' phase in this round.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The offset of 16-byte chunk `chunk` of a row of queries, in the 128-byte swizzle.
__device__ __forceinline__ int swizzled_offset(int row, int chunk) {
  return (chunk / 8 * kPrefillRows + row) * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

// Packed row i of the tile; null past its end.
template <int kDim, class T>
__device__ T* packed_row(const PrefillArgs& p, const Work& work, T* base, int64_t stride, int i) {
  const int group = p.args.group;
  if (i >= work.tile.rows * group) return nullptr;
  return base + (work.tile.row + i / group) * stride +
         static_cast<int64_t>(work.head * group + i % group) * kDim;
}

// Loads rows [64 * group, 64 * group + 64) of the queries; each warpgroup loads its own rows.
template <int kDim>
__device__ void load_queries(const PrefillArgs& p, const Work& work, int group, uint8_t* q) {
  const auto* from = static_cast<const __nv_bfloat16*>(p.args.q);
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
#pragma unroll
  for (int i = thread; i < kRowsOfGroup * kDim / 8; i += kGroupThreads) {
    const int row = group * kRowsOfGroup + i / (kDim / 8), chunk = i % (kDim / 8);
    const auto* at = packed_row<kDim>(p, work, from, p.args.q_stride, row);
    const uint4 value = at ? *reinterpret_cast<const uint4*>(at + chunk * 8) : uint4{};
    *reinterpret_cast<uint4*>(q + swizzled_offset(row, chunk)) = value;
  }
  fence_async();
  named_sync(kOwnBarrier + group, kGroupThreads);
}

// Clears values past the context: the page that holds its end may hold any bits there.
template <int kDim>
__device__ void clear_tail(int group, int begin, uint8_t* v) {
  for (int i = static_cast<int>(threadIdx.x) % kGroupThreads;
       i < (kKeys<kDim> - begin) * (kDim / 8); i += kGroupThreads) {
    const int row = begin + i / (kDim / 8), chunk = i % (kDim / 8);
    *reinterpret_cast<uint4*>(v + (chunk / 8 * kKeys<kDim> + row) * 128 + chunk % 8 * 16) = uint4{};
  }
  fence_async();
  named_sync(kOwnBarrier + group, kGroupThreads);
}

using Softmax = TileSoftmax<kSums>;

// Turns the scores of positions from t0 on into weights.
template <int n>
__device__ __forceinline__ void step(Softmax& softmax, float (&s)[n], float scale_log2, int t0,
                                     bool edge, int window) {
  if (edge) softmax.hide(s, t0, window);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    softmax.raise(half, highest(s, half), scale_log2);
    softmax.weigh(s, half, scale_log2);
  }
}

// What a softmax has summed of a row.
__device__ __forceinline__ Total total(const Softmax& s, int half) {
  const float(&sum)[kSums] = s.sum[half];
  return {s.top[half], sum_of_quarters(sum_of_lanes(sum[0]), sum_of_lanes(sum[1]),
                                       sum_of_lanes(sum[2]), sum_of_lanes(sum[3]))};
}

template <int n>
__device__ __forceinline__ void pack(uint32_t (&to)[n / 8][4], const float (&s)[n]) {
#pragma unroll
  for (int i = 0; i < n / 2; ++i) to[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

// Descriptors count in units of 16 bytes.
template <int kDim>
__device__ __forceinline__ void multiply_keys(float (&s)[kKeys<kDim> / 2], uint64_t q, uint32_t k) {
  const uint64_t keys = wgmma_operand(k);
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    wgmma<kKeys<kDim>>(s, q + i / 4 * kPrefillRows * 8 + i % 4 * 2,
                       keys + i / 4 * kKeys<kDim> * 8 + i % 4 * 2, i > 0);
  }
}
template <int kDim>
__device__ __forceinline__ void multiply_values(float (&o)[kDim / 2],
                                                const uint32_t (&weights)[kKeys<kDim> / 16][4],
                                                uint32_t v) {
  const uint64_t values = wgmma_operand(v, kKeys<kDim> * 128);
#pragma unroll
  for (int i = 0; i < kKeys<kDim> / 16; ++i) {
    wgmma_columns<kDim>(o, weights[i], values + i * 128);
  }
}

template <int kDim>
__device__ void write_rows(const PrefillArgs& p, const Work& work, int group, uint8_t* rows,
                           const float (&o)[kDim / 2], const Total (&totals)[2]) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int row = group * kRowsOfGroup + thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = inverse(totals[half].sum);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(rows + swizzled_offset(row + 8 * half, n) + lane % 4 * 4) =
          pack_bf16(o[n * 4 + 2 * half] * scale, o[n * 4 + 2 * half + 1] * scale);
    }
  }
  named_sync(kOwnBarrier + group, kGroupThreads);
  auto* out = static_cast<__nv_bfloat16*>(p.args.out);
#pragma unroll
  for (int i = thread; i < kRowsOfGroup * kDim / 8; i += kGroupThreads) {
    const int r = group * kRowsOfGroup + i / (kDim / 8), chunk = i % (kDim / 8);
    auto* at = packed_row<kDim>(p, work, out, p.args.out_stride, r);
    if (at)
      *reinterpret_cast<uint4*>(at + chunk * 8) =
          *reinterpret_cast<uint4*>(rows + swizzled_offset(r, chunk));
  }
}

// `tails`: values past the context may be any bits. `pieces`: the sums of a row begin anew in each
// piece, and are folded in the order of pieces.
template <int kDim, bool kTails, bool kPieces>
__device__ void attend(const PrefillArgs& p, const Work& work, int group,
                       Shared<kDim, kPieces>& shared) {
  constexpr int kTileKeys = kKeys<kDim>;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int other = 1 - group, window = p.args.window;
  Softmax softmax;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = group * kRowsOfGroup + thread / 32 * 16 + lane / 4 + 8 * half;
    softmax.limit[half] =
        work.tile.kv_len - work.tile.rows + min(i / p.args.group, work.tile.rows - 1);
  }
  constexpr bool kScratch = kPieces && kDim == 256;
  if constexpr (kScratch) {
    if (thread == 0) shared.folds.scratch[group] = take_scratch(p.folds, group);
  }
  load_queries<kDim>(p, work, group, shared.q);
  float4* place = nullptr;
  if constexpr (kScratch)
    place = reinterpret_cast<float4*>(p.folds.values +
                                      shared.folds.scratch[group] * FoldScratch::kFloats);
  else
    place = shared.folds.group(group);
  Folded<kDim> folded(place);
  const uint64_t q = wgmma_operand(shared_address(shared.q) + group * kRowsOfGroup * 128);
  // Whether a tile needs a mask, because some row does not see all of it.
  const int all_see = work.tile.kv_len - work.tile.rows;
  const auto edge = [&](int tile) {
    return (tile + 1) * kTileKeys - 1 > all_see ||
           (window > 0 && tile * kTileKeys < work.tile.kv_len - window);
  };
  float s[kTileKeys / 2], o[kDim / 2];
  uint32_t weights[kTileKeys / 16][4];
#pragma unroll
  for (float& x : o) x = 0;
  if (group == 1) named_arrive(kTurnBarrier, kThreads - kGroupThreads);
  Ring<kStages<kDim, kPieces>> keys, values;

  named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
  barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  wgmma_fence();
  multiply_keys<kDim>(s, q, shared_address(shared.k[keys.stage]));
  wgmma_commit();
  named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
  wgmma_wait<0>();
  settle(s);
  if (thread == 0) barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
  keys.advance();
  step(softmax, s, p.scale_log2, work.first * kTileKeys, edge(work.first), window);
  pack(weights, s);

  if (work.first + 1 < work.end) {
    barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  }
  for (int tile = work.first + 1; tile < work.end; ++tile) {
    named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
    wgmma_fence();
    multiply_keys<kDim>(s, q, shared_address(shared.k[keys.stage]));
    wgmma_commit();
    barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
    multiply_values<kDim>(o, weights, shared_address(shared.v[values.stage]));
    wgmma_commit();
    named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
    wgmma_wait<1>();
    settle(s);
    if (thread == 0) barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
    keys.advance();
    const bool begins = kPieces && begins_piece(tile * (kTileKeys / kTile), p.piece);
    Total ended[2];
    if (begins) {
      ended[0] = total(softmax, 0), ended[1] = total(softmax, 1);
      softmax.restart();
    }
    step(softmax, s, p.scale_log2, tile * kTileKeys, edge(tile), window);
    // The loop inside this wait also keeps the assembler from moving the softmax past the next one.
    if (tile + 1 < work.end) {
      barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
    }
    wgmma_wait<0>();
    settle(o);
    settle(weights);
    if (thread == 0) barrier_arrive(shared_address(&shared.v_empty[values.stage]));
    values.advance();
    pack(weights, s);
    if (begins) folded.add(o, ended);
      // In a new piece the factor is zero; the sum makes a zero positive.
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] = __fmaf_rn(o[i], softmax.keep[i / 2 % 2], 0.0f);
  }
  barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
  const int tail = work.tile.kv_len - (work.end - 1) * kTileKeys;
  if (kTails && tail < kTileKeys) clear_tail<kDim>(group, tail, shared.v[values.stage]);
  wgmma_fence();
  multiply_values<kDim>(o, weights, shared_address(shared.v[values.stage]));
  wgmma_commit();
  wgmma_wait<0>();
  settle(o);
  if (group == 0) named_sync(kTurnBarrier, kThreads - kGroupThreads);  // consumes the last turn
  Total totals[2] = {total(softmax, 0), total(softmax, 1)};
  if constexpr (kPieces) folded.finish(o, totals);
  write_rows<kDim>(p, work, group, shared.q, o, totals);
  if constexpr (kScratch) {
    if (thread == 0) {  // all have read: write_rows() has met at a barrier
      __threadfence();
      atomicExch(p.folds.taken + shared.folds.scratch[group], 0);
    }
  }
}

}  // namespace skiff::cuda::prefill
