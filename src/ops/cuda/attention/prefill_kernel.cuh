// ops/cuda/attention/prefill_kernel.cuh -- attention of many rows. A block takes 128 packed rows
// (row and head of a group) of one kv head and walks back over their context in tiles. A
// third warpgroup fills the tiles. Two consumer warpgroups have 64 rows each and take turns at the
// tensor cores, so that the softmax of one hides behind the GEMMs of the other; within each, the
// scores of the next tile are computed while the values of this one are added. The schedule is that
// of Shah et al. 2024, "FlashAttention-3".
#pragma once
#include <cuda_bf16.h>

#include <algorithm>

#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::prefill {

constexpr int kGroupThreads = 128;
constexpr int kGroups = 2;  // warpgroups that multiply
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kRowsOfGroup = kPrefillRows / kGroups;
// Named barriers: each warpgroup has one for itself and one for its turn at the tensor cores.
constexpr int kOwnBarrier = 1, kTurnBarrier = 3;

template <int kDim>
constexpr int kKeys = kDim == 256 ? 64 : 128;  // positions of a tile

template <int kDim>
constexpr int kStages = kDim == 64    ? 5
                        : kDim == 128 ? 3
                                      : 2;  // what shared memory holds

template <int kDim>
struct Shared {
  uint8_t q[kPrefillRows * kDim * 2];  // afterwards the result
  uint8_t k[kStages<kDim>][kKeys<kDim> * kDim * 2];
  uint8_t v[kStages<kDim>][kKeys<kDim> * kDim * 2];
  uint64_t k_full[kStages<kDim>], k_empty[kStages<kDim>];
  uint64_t v_full[kStages<kDim>], v_empty[kStages<kDim>];
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

// The online softmax of a thread's two rows: lane / 4 and lane / 4 + 8 of its warp's 16.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, keep[2];
  int limit[2];  // the last position that the row sees

  // Turns scores into probabilities; keep[] becomes the factor that rescales earlier sums.
  template <int n>
  __device__ __forceinline__ void step(float (&s)[n], float scale_log2, int t0, bool edge,
                                       int window) {
    if (edge) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const int t = t0 + i / 4 * 8 + column + i % 2, last = limit[i / 2 % 2];
        if (t > last || (window > 0 && t <= last - window)) s[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = s[2 * half];
#pragma unroll
      for (int i = 0; i < n; i += 4) x = fmaxf(x, fmaxf(s[i + 2 * half], s[i + 2 * half + 1]));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
      const float before = top[half];
      top[half] = fmaxf(before, x);
      const float base = top[half] == -INFINITY ? 0.0f : top[half] * scale_log2;
      keep[half] = exp2_fast(before * scale_log2 - base);
      float total = 0;
#pragma unroll
      for (int i = 0; i < n; i += 4) {
        s[i + 2 * half] = exp2_fast(s[i + 2 * half] * scale_log2 - base);
        s[i + 2 * half + 1] = exp2_fast(s[i + 2 * half + 1] * scale_log2 - base);
        total += s[i + 2 * half] + s[i + 2 * half + 1];
      }
      sum[half] = sum[half] * keep[half] + total;
    }
  }
};

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
                           const float (&o)[kDim / 2], Softmax& softmax) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int row = group * kRowsOfGroup + thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const float scale = 1 / sum;
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

// `tails`: values past the context may be any bits.
template <int kDim, bool kTails>
__device__ void attend(const PrefillArgs& p, const Work& work, int group, Shared<kDim>& shared) {
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
  load_queries<kDim>(p, work, group, shared.q);
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
  Ring<kStages<kDim>> keys, values;

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
  softmax.step(s, p.scale_log2, (work.end - 1) * kTileKeys, edge(work.end - 1), window);
  pack(weights, s);
  const int tail = work.tile.kv_len - (work.end - 1) * kTileKeys;
  if (kTails && tail < kTileKeys) {
    barrier_wait(shared_address(&shared.v_full[0]), 0);
    clear_tail<kDim>(group, tail, shared.v[0]);
  }

  if (work.end - 2 >= work.first) {
    barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  }
  for (int tile = work.end - 2; tile >= work.first; --tile) {
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
    softmax.step(s, p.scale_log2, tile * kTileKeys, edge(tile), window);
    // The loop inside this wait also keeps the assembler from moving the softmax past the next one.
    if (tile > work.first) {
      barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
    }
    wgmma_wait<0>();
    settle(o);
    settle(weights);
    if (thread == 0) barrier_arrive(shared_address(&shared.v_empty[values.stage]));
    values.advance();
    pack(weights, s);
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] *= softmax.keep[i / 2 % 2];
  }
  barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
  wgmma_fence();
  multiply_values<kDim>(o, weights, shared_address(shared.v[values.stage]));
  wgmma_commit();
  wgmma_wait<0>();
  settle(o);
  if (group == 0) named_sync(kTurnBarrier, kThreads - kGroupThreads);  // consumes the last turn
  write_rows<kDim>(p, work, group, shared.q, o, softmax);
}

}  // namespace skiff::cuda::prefill
