// ops/cuda/attention/invariant_compute.cuh -- what the kernel that decodes in pieces computes. Four
// warps share each tile: a warp multiplies the queries by a quarter of the keys, the maxima of the
// quarters and then the weights pass through shared memory, and a warp adds up a quarter of the
// columns. So a row's sums have the order of the prefill kernel's (key_tiles.cuh).
#pragma once
#include "ops/cuda/attention/decode_compute.cuh"
#include "ops/cuda/attention/invariant_shape.cuh"

namespace skiff::cuda::decode {

// What a warp keeps during a run, of rows lane / 4 and lane / 4 + 8.
template <class S>
struct Rows16 {
  static constexpr int kFragments = S::kColumns / 8;
  uint32_t q[S::kDim / 16][4];
  TileSoftmax<1> softmax;
  float o[kFragments][4];       // the sums of the piece at hand
  float folded[kFragments][4];  // the fold of the pieces that have ended
  Total total[2];

  __device__ void clear(float (&x)[kFragments][4]) {
#pragma unroll
    for (auto& fragment : x)
#pragma unroll
      for (float& value : fragment) value = 0;
  }
};

template <class S>
__device__ void begin_run(const DecodeArgs& d, const Run& run, Rows16<S>& rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* q = static_cast<const __nv_bfloat16*>(d.args.q);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = lane / 4 + half * kHalf, group = d.args.group;
    const bool real = i < run.share.rows * group;
    const int64_t row = run.share.row + (real ? i / group : 0);
    const int head = run.head * group + (real ? i % group : 0);
    const auto* from = q + row * d.args.q_stride + head * S::kDim + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < S::kDim / 16; ++c) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        rows.q[c][half + 2 * k] =
            real ? *reinterpret_cast<const uint32_t*>(from + c * 16 + k * 8) : 0;
      }
    }
    rows.softmax.limit[half] = run.share.kv_len - run.share.rows + i / group;
    rows.total[half] = {};
  }
  rows.softmax.restart();
  rows.clear(rows.o);
  rows.clear(rows.folded);
}

// Where ldmatrix finds chunk 2 * n + c of a row of a slot, given where it finds chunk c < 2 of the
// row's first or second half of 128 bytes: in the 128-byte swizzle the two differ in bits 5 and 6.
__device__ __forceinline__ uint32_t further(uint32_t address, int n) {
  return (address ^ static_cast<uint32_t>(n % 4 * 32)) + static_cast<uint32_t>(n / 4 * kTile * 128);
}

// Scores of this warp's keys, which begin at `row` of a slot.
template <class S>
__device__ void multiply_keys(const Rows16<S>& rows, uint32_t slot, int row,
                              float (&s)[S::kWarpKeys / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t at = slot + swizzled_offset(row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  auto& fragment = reinterpret_cast<float(&)[S::kWarpKeys / 8][4]>(s);
#pragma unroll
  for (int c = 0; c < S::kDim / 16; ++c) {
#pragma unroll
    for (int n = 0; n < S::kWarpKeys / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, further(at, c) + n * 16 * 128);
      mma_bf16(fragment[2 * n], rows.q[c], b[0], b[1]);
      mma_bf16(fragment[2 * n + 1], rows.q[c], b[2], b[3]);
    }
  }
}

// Adds the values of a slot to this warp's columns.
template <class S>
__device__ void multiply_values(Rows16<S>& rows, uint32_t slot, const uint4 (*weights)[32]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = static_cast<int>(threadIdx.x) / 32 * (S::kColumns / 8) + lane / 16;
  const uint32_t at = slot + swizzled_offset(lane % 16, chunk);
#pragma unroll
  for (int i = 0; i < kTile / 16; ++i) {
    const uint4 w = weights[i][lane];
    const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int n = 0; n < S::kColumns / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, further(at, n) + i * 16 * 128);
      mma_bf16(rows.o[2 * n], a, b[0], b[1]);
      mma_bf16(rows.o[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Values that nobody sees may be any bits, and zero times NaN is NaN: clears, in this warp's
// columns of a slot, those of positions from t0 on that do not lie in [seen, end).
template <class S>
__device__ void clear_unseen(uint8_t* slot, int t0, int seen, int end) {
  constexpr int kChunks = S::kColumns / 8;
  const int first = static_cast<int>(threadIdx.x) / 32 * kChunks;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < kTile * kChunks; i += 32) {
    const int row = i / kChunks, t = t0 + row;
    if (t >= seen && t < end) continue;
    *reinterpret_cast<uint4*>(slot + swizzled_offset(row, first + i % kChunks)) = uint4{};
  }
  fence_async();  // TMA writes here next
  __syncwarp();
}

// Takes in the maxima of the four quarters of a tile, of which this warp has one.
template <class S>
__device__ void raise_tops(const DecodeArgs& d, Rows16<S>& rows, InvariantShared<S>& shared,
                           const float (&s)[S::kWarpKeys / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float x = highest(s, half);
    if (lane % 4 == 0) reinterpret_cast<float*>(&shared.top[lane / 4 + half * kHalf])[warp] = x;
  }
  named_sync(kComputeBarrier, S::kComputing);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 x = shared.top[lane / 4 + half * kHalf];
    rows.softmax.raise(half, fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)), d.scale_log2);
  }
}

// Turns this warp's scores into weights, which it gives to the others, and rescales its columns.
template <class S>
__device__ void weigh(const DecodeArgs& d, Rows16<S>& rows, InvariantShared<S>& shared,
                      float (&s)[S::kWarpKeys / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) rows.softmax.weigh(s, half, d.scale_log2);
#pragma unroll
  for (int i = 0; i < S::kWarpKeys / 16; ++i) {
    const float* x = s + 8 * i;
    shared.weights[warp * (S::kWarpKeys / 16) + i][lane] = make_uint4(
        pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
  }
  const float(&keep)[2] = rows.softmax.keep;
  if (__any_sync(kAllLanes, keep[0] != 1 || keep[1] != 1)) {
#pragma unroll
    for (auto& fragment : rows.o)
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = __fmaf_rn(fragment[i], keep[i / 2], 0.0f);
  }
}

// Attends to a tile, whose first slot is ring's. Slots of keys may be given back before they are
// full by a warp that has none of them: the others meet it before it comes to that slot again.
template <class S>
__device__ void attend_tile(const DecodeArgs& d, const Run& run, const KeyTile<S>& tile,
                            const SlotRing<S::kSlots>& ring, Rows16<S>& rows,
                            InvariantShared<S>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, window = d.args.window;
  const int first_key = warp * S::kWarpKeys, own = first_key / kTile, t0 = tile.position();
  const DecodeShare& share = run.share;
  float s[S::kWarpKeys / 2];
  if (own >= tile.low && own < tile.high) {
    const SlotRing<S::kSlots> at = ring.after(own - tile.low);
    barrier_wait(shared_address(&shared.full[at.slot]), at.phase);
#pragma unroll
    for (float& x : s) x = 0;
    multiply_keys<S>(rows, shared_address(shared.slot[at.slot]), first_key % kTile, s);
    const int last = t0 + first_key + S::kWarpKeys - 1;
    if (last > share.kv_len - share.rows || (window > 0 && t0 + first_key < share.kv_len - window))
      rows.softmax.hide(s, t0 + first_key, window);
  } else {
#pragma unroll
    for (float& x : s) x = -INFINITY;
  }
  __syncwarp();
  const bool one = threadIdx.x % 32 == 0;
  for (int i = 0; one && i < tile.halves(); ++i)
    barrier_arrive(shared_address(&shared.empty[ring.after(i).slot]));
  raise_tops<S>(d, rows, shared, s);
  weigh<S>(d, rows, shared, s);
  named_sync(kComputeBarrier, S::kComputing);
  const int seen = first_seen(share, window);
#pragma unroll
  for (int half = 0; half < S::kHalves; ++half) {
    if (half < tile.low || half >= tile.high) continue;
    const SlotRing<S::kSlots> at = ring.after(tile.halves() + half - tile.low);
    const int begin = t0 + half * kTile;
    barrier_wait(shared_address(&shared.full[at.slot]), at.phase);
    if (begin < seen || begin + kTile > share.kv_len)
      clear_unseen<S>(shared.slot[at.slot], begin, seen, share.kv_len);
    multiply_values<S>(rows, shared_address(shared.slot[at.slot]),
                       shared.weights + half * (kTile / 16));
    __syncwarp();
    if (one) barrier_arrive(shared_address(&shared.empty[at.slot]));
  }
}

}  // namespace skiff::cuda::decode
