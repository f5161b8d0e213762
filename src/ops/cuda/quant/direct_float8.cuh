// ops/cuda/quant/direct_float8.cuh -- products of a few rows with e4m3 weights that lie row by row
// (float8_rows.h, float8_channels.h).
//
// Codes become f16, which holds them exactly, two at a time. A lane's four codes of 16 columns are
// those of columns 4 * (lane % 4) + {0..3}, where mma.m16n8k16 takes columns 2 * (lane % 4) + {0,
// 1, 8, 9}: so rows of x lie in shared memory in the order in which the tensor cores meet them, the
// first two of every four columns before the others. Rows of x are rounded to e4m3 on their way
// there, or by a kernel before this one; their scales lie behind them. kChannels: scales of whole
// rows, which multiply sums where these end. PTX ISA, "cvt", "mma.sync".
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/math.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/quant/direct_kernel.cuh"
#include "ops/cuda/quant/float8_args.cuh"
#include "ops/cuda/quant/round_group.cuh"
#include "ops/cuda/quant/round_row.cuh"
#include "ops/cuda/quant/shared_loads.cuh"

namespace skiff::cuda::direct {

using float8::Float8Args;

// The two codes in the low half of a word, and in its high half, as f16.
__device__ __forceinline__ uint32_t halves_of_two(uint16_t codes) {
  uint32_t pair = 0;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
#endif
  return pair;
}
__device__ __forceinline__ uint32_t low_halves(uint32_t codes) {
  return halves_of_two(static_cast<uint16_t>(codes));
}
__device__ __forceinline__ uint32_t high_halves(uint32_t codes) {
  return halves_of_two(static_cast<uint16_t>(codes >> 16));
}

template <bool kGated, bool kChannels>
class Float8 {
 public:
  static constexpr Division kDivision = kFloat8Division;
  static constexpr int kRowBytes = kFloat8Columns;  // a weight row in a chunk
  static constexpr int kStageBytes = kFloat8Height * kRowBytes;
  static constexpr int kXBytes = 2 * kFloat8Columns;

  struct Cursor {
    int column, pair, expert;  // in pairs of weights
  };
  // Scales of the item's weight rows and of the lane's two columns of rows of x, chunk after chunk.
  // Those of channels are `first` and `second`, of the lane's two weight rows.
  struct Scales {
    const float *gate, *up;
    float next_gate, next_up;
    uint32_t x[2];  // shared addresses
    float first = 1, second = 1;
  };
  // A lane's codes, as ldmatrix gives them: of each 32 columns.
  struct Chunk {
    uint32_t codes[4][4];
  };

  // `x_scales`: the shared address of those of rows of x, [rows][chunks], or of channels [rows].
  __device__ Float8(const CUtensorMap& map, const Float8Args& q, uint32_t x_scales, int chunks)
      : map_(map), q_(q), x_scales_(x_scales), chunks_(chunks), lane_(threadIdx.x % 32) {}

  __device__ Cursor begin(const Item& item, int chunk) const {
    return {chunk * (kFloat8Columns / 2), item.pair, item.expert};
  }
  __device__ void copy(Cursor& c, uint32_t to, uint32_t full) const {
    barrier_expect(full, kStageBytes);
    if constexpr (kGated)
      copy_tile(to, map_, full, c.column, 0, 0, c.pair, c.expert, Keep::kFirstToGo);
    else
      copy_tile(to, map_, full, c.column, c.pair * kFloat8Height, 0, 0, c.expert, Keep::kFirstToGo);
    c.column += kFloat8Columns / 2;
  }

  template <class RowOf>
  __device__ Scales scales_of(const Item& item, int chunk, RowOf row_of) const {
    if constexpr (kChannels) return channel_scales(item, row_of);
    const int block = item.pair * (kGated ? kFloat8Height / 2 : kFloat8Height) / kFloat8Columns;
    const float* gate =
        q_.scales + item.expert * q_.expert_scales + block * q_.scale_stride + chunk;
    const float* up = kGated ? gate + q_.up_row * q_.scale_stride : gate;
    const int column = 2 * (lane_ % 4);
    return {gate,
            up,
            __ldg(gate),
            __ldg(up),
            {x_scales_ + 4 * (row_of(column) * chunks_ + chunk),
             x_scales_ + 4 * (row_of(column + 1) * chunks_ + chunk)}};
  }

  // Rows of a chunk lie in TMA's swizzle of 128 bytes.
  __device__ __forceinline__ Chunk load(uint32_t stage) const {
    Chunk chunk;
    const uint32_t row = stage + lane_ % 16 * kRowBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_matrices(chunk.codes[i], row + ((2 * i + lane_ / 16) ^ lane_ % 8) * 16);
    return chunk;
  }

  // Adds the products of a chunk, whose columns of x begin at `x`. Both halves of 32 columns have
  // sums of their own, so that products wait less. `more`: another chunk follows.
  __device__ __forceinline__ void multiply(float (&sum)[2][4], const Chunk& chunk, uint32_t x,
                                           Scales& s, bool more) const {
    if constexpr (kChannels) {
      add_products(sum, chunk, x);
      if (!more) scale_columns(sum, s);
      return;
    }
    const float gate = s.next_gate, up = s.next_up;
    if (more) {
      s.next_gate = __ldg(++s.gate);
      if constexpr (kGated) s.next_up = __ldg(++s.up);
    }
    float part[2][4] = {};
    add_products(part, chunk, x);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float by = atoms::load_shared_float(s.x[c]);
      s.x[c] += 4;
      sum[0][c] = fmaf(part[0][c] + part[1][c], gate * by, sum[0][c]);
      sum[0][2 + c] =
          fmaf(part[0][2 + c] + part[1][2 + c], (kGated ? up : gate) * by, sum[0][2 + c]);
    }
  }

 private:
  template <class RowOf>
  __device__ Scales channel_scales(const Item& item, RowOf row_of) const {
    const int row = item.pair * (kGated ? 8 : 16) + lane_ / 4, column = 2 * (lane_ % 4);
    return {.x = {x_scales_ + 4 * row_of(column), x_scales_ + 4 * row_of(column + 1)},
            .first = __ldg(q_.scales + row),
            .second = __ldg(q_.scales + row + (kGated ? q_.up_row : 8))};
  }
  __device__ __forceinline__ void scale_columns(float (&sum)[2][4], const Scales& s) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float by = atoms::load_shared_float(s.x[c]);
#pragma unroll
      for (int h = 0; h < 2; ++h) sum[h][c] *= by, sum[h][2 + c] *= by;
    }
  }
  __device__ __forceinline__ void add_products(float (&sum)[2][4], const Chunk& chunk,
                                               uint32_t x) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t columns[4];
      load_matrices(columns, x + i * 64);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t upper = chunk.codes[i][2 * h], lower = chunk.codes[i][2 * h + 1];
        const uint32_t w[4] = {low_halves(upper), low_halves(lower), high_halves(upper),
                               high_halves(lower)};
        mma_f16(sum[h], w, columns[2 * h], columns[2 * h + 1]);
      }
    }
  }

  const CUtensorMap& map_;
  const Float8Args& q_;
  const uint32_t x_scales_;
  const int chunks_, lane_;
};

// Where four columns of a row of x go, which begin with column `column`: the first two, and 16
// bytes on the others.
__device__ __forceinline__ int place_of_four(int column) { return column / 16 * 32 + column % 16; }

// Stores the lane's four codes of a chunk of a row.
__device__ __forceinline__ void put_codes(char* row, int chunk, uint32_t codes) {
  const int column = static_cast<int>(threadIdx.x % 32) * kLaneElements;
  char* at = row + chunk * (2 * kFloat8Columns) + place_of_four(column);
  *reinterpret_cast<uint32_t*>(at) = low_halves(codes);
  *reinterpret_cast<uint32_t*>(at + 16) = high_halves(codes);
}
// Rounds a chunk of a row, of which a lane has four columns.
__device__ __forceinline__ void put_group(const float (&value)[kLaneElements], char* row,
                                          float* scales, int chunk) {
  const GroupCodes<kLaneElements> as = codes_of_group(value);
  put_codes(row, chunk, as.codes[0]);
  if (threadIdx.x % 32 == 0) scales[chunk] = as.scale;
}

// Rounds the rows of x, a warp one chunk after the other.
__device__ __forceinline__ void stage_floats(char* to, float* scales, const DirectArgs& a) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % 32;
  const auto* x = static_cast<const __nv_bfloat16*>(a.x) + lane * kLaneElements;
  PieceWalk walk(static_cast<int>(threadIdx.x / 32), kFloat8Division.warps, a.chunks);
#pragma unroll 1
  while (walk.row < a.rows) {
    uint2 words[kAtOnce] = {};
    PieceWalk done = walk;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, walk.next())
      if (walk.row < a.rows)
        words[i] = __ldcg(reinterpret_cast<const uint2*>(x + walk.row * a.x_stride +
                                                         walk.piece * kFloat8Columns));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, done.next()) {
      if (done.row >= a.rows) break;
      const float value[] = {low_bf16(words[i].x), high_bf16(words[i].x), low_bf16(words[i].y),
                             high_bf16(words[i].y)};
      put_group(value, to + done.row * a.pitch, scales + done.row * a.chunks, done.piece);
    }
  }
}

// Rounds the rows of x with a scale for each. A warp keeps its chunks, at most kMostRounded of all
// warps, until the largest magnitudes of whole rows are known.
__device__ __forceinline__ void stage_tokens(char* to, float* scales, const DirectArgs& a) {
  constexpr int kWarps = kFloat8Division.warps, kEach = kMostRounded / kWarps;
  static_assert(kWarps <= 32);
  __shared__ float largest[kMostFloat8Rows][32];  // the largest in each warp's chunks of a row
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x / 32);
  const auto* x = static_cast<const __nv_bfloat16*>(a.x) + lane * kLaneElements;
  uint2 words[kEach] = {};
  PieceWalk at(warp, kWarps, a.chunks), walk = at, done = at;
#pragma unroll
  for (int i = 0; i < kEach; ++i, at.next())
    if (at.row < a.rows)
      words[i] = __ldcg(
          reinterpret_cast<const uint2*>(x + at.row * a.x_stride + at.piece * kFloat8Columns));
  float most[kMostFloat8Rows] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i, walk.next()) {
    const float of_piece = largest_of(largest_of(0, words[i].x), words[i].y);
#pragma unroll
    for (int r = 0; r < kMostFloat8Rows; ++r)
      if (walk.row == r) most[r] = fmaxf(most[r], of_piece);
  }
#pragma unroll
  for (int r = 0; r < kMostFloat8Rows; ++r) {
    if (r >= a.rows) break;
    most[r] = warp_max(most[r]);
    if (lane == 0) largest[r][warp] = most[r];
  }
  __syncthreads();
  float scale[kMostFloat8Rows] = {};
#pragma unroll
  for (int r = 0; r < kMostFloat8Rows; ++r) {
    if (r >= a.rows) break;
    scale[r] = scale_of_row(warp_max(lane < kWarps ? largest[r][lane] : 0));
    if (threadIdx.x == 0) scales[r] = scale[r];
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i, done.next()) {
    if (done.row >= a.rows) break;
    float by = scale[0];
#pragma unroll
    for (int r = 1; r < kMostFloat8Rows; ++r)
      if (done.row == r) by = scale[r];
    put_codes(to + done.row * a.pitch, done.piece, codes_of_four(words[i].x, words[i].y, by));
  }
}

// Brings rows that have been rounded.
template <bool kChannels>
__device__ __forceinline__ void stage_codes(char* to, float* scales, const DirectArgs& a,
                                            const Float8Args& q) {
  constexpr int kThreads = kFloat8Division.warps * 32, kAtOnce = 4;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* x = static_cast<const std::byte*>(a.x);
  PieceWalk walk(thread, kThreads, a.chunks * (kFloat8Columns / 16));
#pragma unroll 1
  while (walk.row < a.rows) {
    uint4 v[kAtOnce];
    uint4* at[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, walk.next()) {
      const bool has = walk.row < a.rows;
      at[i] = has ? reinterpret_cast<uint4*>(to + walk.row * a.pitch) + 2 * walk.piece : nullptr;
      const std::byte* from = x + walk.row * a.x_stride + walk.piece * 16;
      v[i] = has ? __ldcg(reinterpret_cast<const uint4*>(from)) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!at[i]) break;
      at[i][0] = {low_halves(v[i].x), low_halves(v[i].y), low_halves(v[i].z), low_halves(v[i].w)};
      at[i][1] = {high_halves(v[i].x), high_halves(v[i].y), high_halves(v[i].z),
                  high_halves(v[i].w)};
    }
  }
  if constexpr (kChannels) {
    if (thread < a.rows) scales[thread] = __ldcg(q.x_scales + thread);
  } else {
    for (PieceWalk s(thread, kThreads, a.chunks); s.row < a.rows; s.next())
      scales[s.row * a.chunks + s.piece] = __ldcg(q.x_scales + s.piece * q.x_scale_stride + s.row);
  }
}

template <bool kGated, bool kChannels>
__global__ void __launch_bounds__(kFloat8Division.warps * 32, 1)
    direct_float8_kernel(const __grid_constant__ CUtensorMap map,
                         const __grid_constant__ DirectArgs a,
                         const __grid_constant__ Float8Args q) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 dynamic[];
  // The swizzle counts from multiples of 1024 bytes.
  char* memory = reinterpret_cast<char*>(dynamic);
  memory += (1024 - shared_address(memory) % 1024) % 1024;
  char* rows = memory + kFloat8Division.warps * kFloat8Division.ring_bytes;
  auto* scales = reinterpret_cast<float*>(rows + a.rows * a.pitch);
  const Float8<kGated, kChannels> weights(map, q, shared_address(scales), a.chunks);
  work<kGated>(a, weights, memory, rows, [&] {
    if (q.x_scales)
      stage_codes<kChannels>(rows, scales, a, q);
    else if (kChannels)
      stage_tokens(rows, scales, a);
    else
      stage_floats(rows, scales, a);
  });
#endif
}

}  // namespace skiff::cuda::direct
