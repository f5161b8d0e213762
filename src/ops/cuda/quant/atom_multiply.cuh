// ops/cuda/quant/atom_multiply.cuh -- the main loop of the streamed GEMM of packed weights:
// elements go from shared memory to registers, are converted, and meet rows of x in wgmma, while
// the tensor cores work on those before them. Scales of groups multiply the sums of their columns.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/fragments.cuh"
#include "ops/cuda/quant/shared_loads.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::atoms {

using namespace streamed;

// The scales, or zero points, of the lane's two rows.
template <class T>
struct OfRows {
  T at[2];
};

// The first n sums of a tile. Those of every size of job begin in the same registers, where wgmma
// wants them to lie.
template <int n, int all>
__device__ __forceinline__ float (&first_of(float (&sums)[all]))[n] {
  static_assert(n <= all);
  return reinterpret_cast<float(&)[n]>(sums);
}

// Which of a block's teams the thread belongs to.
template <class Ring>
__device__ __forceinline__ int team() {
  return Ring::kTeams == 1 ? 0 : static_cast<int>(threadIdx.x) / kConsumers;
}
// The place of the team's tile `t` among those that the block multiplies at a time.
template <class Ring>
__device__ __forceinline__ int place_of_tile(int t) {
  return team<Ring>() * Ring::kTeamTiles + t;
}
// Slice `s` of tiles that a block multiplies at a time, as a slice of the one at a place.
template <class Ring>
__device__ __forceinline__ TileSlice slice_of_tile(const TileSlice& s, int place) {
  TileSlice tile = s;
  tile.tile = s.tile * Ring::kTiles + place;
  return tile;
}

// The 128 weight rows of each of a block's tiles by up to N rows of x, which may be fewer than a
// stage of the ring has room for. A warp has two of a tile's 16 atoms: 16 weight rows.
// kZeros: atoms have zero points. It is no branch in the loop, where a predicate would turn the
// subtractions off at the price of their issue slots.
template <class RingOf, int N, bool kGated, bool kZeros>
class AtomMultiplier {
 public:
  using Ring = RingOf;
  static constexpr Codes kCodes = Ring::kCodes;
  static constexpr int kGroups = Ring::kGroups, kTiles = Ring::kTeamTiles;
  static_assert(Ring::kTiles == 1 || takes_pairs(kGroups));
  using Turn = RingTurn<Ring::kStages>;
  using Sums = float[Ring::kRows / 2];  // room for a thread's sums of one tile

  __device__ AtomMultiplier(const AtomArgs& q, const Ring& ring)
      : q_(q),
        ring_(ring),
        lane_(threadIdx.x % 32),
        base_(four_units(-static_cast<int>(q.fixed_zero))) {
    const int warp = threadIdx.x % kConsumers / 32, first = place_of_tile<Ring>(0) * kBlockAtoms;
    atom_[0] = (first + (kGated ? warp : 2 * warp)) * q.atom_bytes;
    atom_[1] = (first + (kGated ? warp + kBlockAtoms / 2 : 2 * warp + 1)) * q.atom_bytes;
    full_ = kept(ring.full);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      words_[h] = kept(ring.weights(0) + atom_[h] + lane_ * 16);
      const int row = lane_ % 8, piece = h * 4 + lane_ / 8;
      x_[h] = kept(ring.rows(0) + row * 128 + (piece ^ row) * 16);
    }
  }

  // sum = the slice's sums, scaled; wgmma.cuh says which thread holds which.
  __device__ void run(Sums (&sum)[kTiles], const TileSlice& s, Turn& turn) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      if (q_.row_scales) prefetch_row_scales(slice_of_tile<Ring>(s, place_of_tile<Ring>(t)));
    if constexpr (kByWarps)
      multiply_by_warps(sum, s, turn);
    else
      multiply_by_warpgroups(sum, s, turn);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const TileSlice tile = slice_of_tile<Ring>(s, place_of_tile<Ring>(t));
      if (q_.row_scales) scale_rows(first_of<N / 2>(sum[t]), tile);
      if (q_.x_row_scales) scale_columns(first_of<N / 2>(sum[t]), tile);
    }
  }

 private:
  static constexpr bool kByWarps = by_warps(kCodes, kGroups, N, Ring::kTiles);
  // A chunk is multiplied in parts, whose operands are converted while the part before is computed.
  // Where two tiles' sums, several blocks or two teams take the registers, parts are short.
  static constexpr int kSubs = kGroups == 4 || Ring::kTeams > 1 ||
                                       (kTiles > 1 && (N > 64 || Ring::kBlocks > 1))
                                   ? 4
                                   : 2;
  static constexpr int kPer = kChunkSteps<kCodes> / kSubs;  // wgmmas of a part
  static_assert(kSubs % 2 == 0);  // so that parts take turns with the operands across tiles

  __device__ void multiply_by_warps(Sums (&sum)[kTiles], const TileSlice& s, Turn& turn) const {
    // Products wait for each other less where each part sums every other 16 columns. Those of two
    // tiles take turns anyway.
    constexpr int kParts = kTiles > 1 ? 1 : 2;
    float part[kTiles][kParts][N / 2] = {};
#pragma unroll
    for (Sums& of_tile : sum) {
#pragma unroll
      for (float& v : first_of<N / 2>(of_tile)) v = 0;
    }
    for (int c = s.begin; c < s.end; ++c) {
      barrier_wait(full_ + 8 * turn.stage, turn.parity);
      const uint32_t stage = turn.stage * Ring::kStageBytes;
      uint4 words[kTiles][2];
      uint32_t x[N / 8][4];  // operands of 32 columns
      OfRows<uint32_t> zero[kTiles] = {};
      constexpr int kGroupSteps = 8 / (kGroups > 0 ? kGroups : 1);
#pragma unroll
      for (int i = 0; i < 8 * kTiles; ++i) {
        const int t = i % kTiles, step = i / kTiles;
        if (step % kGroupSteps == 0) {
          if constexpr (kZeros) zero[t] = zero_points(turn.stage, step / kGroupSteps, t);
          if constexpr (kGroups > 0) {
#pragma unroll
            for (int n = 0; n < N / 2; ++n) part[t][0][n] = part[t][kParts - 1][n] = 0;
          }
        }
        if (step % kLoadSteps<kCodes> == 0) load_words(words[t], stage + from_first(t), step);
        if (step % 2 == 0 && t == 0) load_rows_of_x(x, stage, step / 2);
        uint32_t w[4];
        operands_of(w, words[t], zero[t], step);
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
          mma_bf16(reinterpret_cast<float(&)[4]>(part[t][step % kParts][4 * j]), w,
                   x[j][step % 2 * 2], x[j][step % 2 * 2 + 1]);
        if (kGroups > 0 && (step + 1) % kGroupSteps == 0) {
          static_assert(kGroups == 0 || kTiles == 1);
          const OfRows<float> scale = scales(turn.stage, step / kGroupSteps);
#pragma unroll
          for (int n = 0; n < N / 2; ++n)
            sum[t][n] = fmaf(all_parts(part[t], n), scale.at[n % 4 / 2], sum[t][n]);
        }
      }
      __syncwarp();
      release(turn.stage);
      turn.advance();
    }
    if constexpr (kGroups == 0) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sum[t][i] = all_parts(part[t], i);
      }
    }
  }
  template <int kParts>
  static __device__ float all_parts(const float (&part)[kParts][N / 2], int i) {
    return kParts == 1 ? part[0][i] : part[0][i] + part[kParts - 1][i];
  }

  // Rows of x for columns [32 * at, 32 * at + 32) of the chunk. `stage`: where it begins in the
  // ring.
  __device__ void load_rows_of_x(uint32_t (&x)[N / 8][4], uint32_t stage, int at) const {
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      load_matrices(x[j], x_[at % 2] + stage + at / 2 * (Ring::kRows * 128) + j * 1024);
  }

  // A stage that the compiler knows to be the same in all lanes: so it counts operands up in the
  // registers that a warp's lanes share, instead of moving each there. Loops of more rows have no
  // registers to spare.
  __device__ int stage_of(const Turn& turn) const {
    return Ring::kRows > 64 ? turn.stage : __shfl_sync(kAllLanes, turn.stage, 0);
  }
  __device__ void multiply_by_warpgroups(Sums (&sum)[kTiles], const TileSlice& s,
                                         Turn& turn) const {
    float part[kGroups > 0 ? N / 2 : 1];
    uint32_t held[2][kPer][4];
    OfRows<float> scale = {};
    uint4 words[2];
    int before = -1;  // the stage that wgmmas still in flight read
    if constexpr (kGroups > 0) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) sum[0][i] = part[i] = 0;
    }
    for (int c = s.begin; c < s.end; ++c) {
      barrier_wait(full_ + 8 * turn.stage, turn.parity);
      const int stage = stage_of(turn);
      OfRows<float> next = scale;
      OfRows<uint32_t> zero = {};
#pragma unroll
      for (int i = 0; i < kTiles * kSubs; ++i) {
        const int t = i / kSubs, sub = i % kSubs;
        wgmma_wait<1>();  // the registers that are written next are free
        if (i == 1 && before >= 0) release(before);
        constexpr int kGroupSubs = kSubs / (kGroups > 1 ? kGroups : 1);
        if (sub % kGroupSubs == 0) {
          if constexpr (kGroups > 0) next = scales(turn.stage, sub / kGroupSubs);
          if constexpr (kZeros)
            zero = zero_points(turn.stage, kGroups > 0 ? sub / kGroupSubs : 0, t);
        }
        convert(held[sub % 2], words, zero, turn.stage * Ring::kStageBytes + from_first(t), sub);
        if constexpr (kGroups > 0) {
          if (sub % kGroupSubs == 0) {
            wgmma_wait<0>();
            settle(part);
            promote(first_of<N / 2>(sum[0]), part, scale, sub == 0 ? before : turn.stage, s);
            scale = next;
          }
          multiply(part, held[sub % 2], stage, sub, sub % kGroupSubs > 0);
        } else {
          multiply(first_of<N / 2>(sum[t]), held[sub % 2], stage, sub, c > s.begin || sub > 0);
        }
      }
      before = turn.stage;
      turn.advance();
    }
    wgmma_wait<0>();
    if constexpr (kGroups > 0) {
      settle(part);
      promote(first_of<N / 2>(sum[0]), part, scale, before, s);
    } else {
#pragma unroll
      for (Sums& tile : sum) settle(first_of<N / 2>(tile));
    }
    release(before);
  }

  // Each warp has read its atoms and rows.
  __device__ void release(int stage) const {
    if (lane_ == 0) barrier_arrive(ring_.empty + 8 * stage);
  }

  __device__ OfRows<float> scales(int stage, int group) const {
    OfRows<float> of;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t at = ring_.weights(stage) + atom_[h] + q_.scales_at;
      of.at[h] = q_.row_scales ? 1 : load_scale(q_.scale, at, group, lane_ / 4) * kScalesBy<kCodes>;
    }
    return of;
  }

  // Bytes of a stage from its first tile to tile `t`.
  __device__ uint32_t from_first(int t) const {
    return kTiles == 1 ? 0 : t * (kBlockAtoms * q_.atom_bytes);
  }

  __device__ OfRows<uint32_t> zero_points(int stage, int group, int t = 0) const {
    OfRows<uint32_t> of;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned zero = load_shared_byte(ring_.weights(stage) + from_first(t) + atom_[h] +
                                             q_.zeros_at + group * kAtomHeight + lane_ / 4);
      of.at[h] = four_units(q_.signed_zeros ? static_cast<int8_t>(zero) : static_cast<int>(zero));
    }
    return of;
  }

  // Makes the operands of a step: registers 0 and 2 hold the lane's first row, 1 and 3 its second.
  __device__ void operands_of(uint32_t (&to)[4], const uint4 (&words)[2],
                              const OfRows<uint32_t>& zero, int step) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      operands<kCodes>(to[h], to[2 + h], words[h], step, base_);
      if constexpr (!kZeros) continue;
      to[h] = subtract_pairs(to[h], zero.at[h]);
      to[2 + h] = subtract_pairs(to[2 + h], zero.at[h]);
    }
  }

  __device__ void load_words(uint4 (&words)[2], uint32_t stage, int step) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      words[h] = load_shared16(words_[h] + stage + step / kLoadSteps<kCodes> * 512);
  }

  __device__ void convert(uint32_t (&to)[kPer][4], uint4 (&words)[2], const OfRows<uint32_t>& zero,
                          uint32_t stage, int sub) const {
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      const int step = sub * kPer + k;
      if (step % kLoadSteps<kCodes> == 0) load_words(words, stage, step);
      operands_of(to[k], words, zero, step);
    }
  }

  __device__ void multiply(float (&into)[N / 2], const uint32_t (&held)[kPer][4], int stage,
                           int sub, bool add) const {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      const int step = sub * kPer + k;
      const uint64_t x = wgmma_operand(ring_.rows(stage) + step / 4 * (Ring::kRows * 128));
      if constexpr (Ring::kHeld)
        wgmma_held_e4m3<N>(into, held[k], x + step % 4 * kWgmmaStep, add || k > 0);
      else
        wgmma_held<N>(into, held[k], x + step % 4 * kWgmmaStep, add || k > 0);
    }
    wgmma_commit();
  }

  // sum += part, the sums of a group's columns, times the group's scales. `stage` has the scales of
  // e4m3 rows; there is none before the first group, when all is zero.
  __device__ void promote(float (&sum)[N / 2], const float (&part)[N / 2],
                          const OfRows<float>& scale, int stage, const TileSlice& s) const {
    if (Ring::kHeld && stage < 0) return;
    const uint32_t of_rows = Ring::kHeld ? ring_.scales(stage) + 4 * (first_row(s) % 4) : 0;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float x = 1;
        if constexpr (Ring::kHeld)
          x = load_shared_float(of_rows + 4 * (8 * j + 2 * (lane_ % 4) + i));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int at = 4 * j + 2 * h + i;
          sum[at] = fmaf(part[at], Ring::kHeld ? scale.at[h] * x : scale.at[h], sum[at]);
        }
      }
    }
  }

  // The lane's row of an atom has this scale.
  __device__ const float* row_scale_of(const TileSlice& s, int atom) const {
    const int warp = threadIdx.x % kConsumers / 32;
    const int first = kGated ? s.tile * (kBlockAtoms / 2) + warp : s.tile * kBlockAtoms + 2 * warp;
    const int second = kGated ? first + q_.up_atoms : first + 1;
    return q_.row_scales + s.job.expert * q_.padded_rows +
           (atom == 0 ? first : second) * kAtomHeight + lane_ / 4;
  }
  // A load before the main loop would share a scoreboard with its loads from shared memory, which
  // then wait for both.
  __device__ void prefetch_row_scales(const TileSlice& s) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) asm volatile("prefetch.global.L1 [%0];" ::"l"(row_scale_of(s, h)));
  }
  __device__ void scale_rows(float (&sum)[N / 2], const TileSlice& s) const {
    const float first = *row_scale_of(s, 0) * kScalesBy<kCodes>;
    const float second = *row_scale_of(s, 1) * kScalesBy<kCodes>;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum[i] *= i % 4 < 2 ? first : second;
  }

  __device__ int first_row(const TileSlice& s) const { return q_.one_row ? 0 : s.job.first; }

  // The scales of rows of x, which are the columns of the tile.
  __device__ void scale_columns(float (&sum)[N / 2], const TileSlice& s) const {
    const float* scales = q_.x_row_scales + first_row(s) + 2 * (lane_ % 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float scale = __ldcg(scales + 8 * j + i);
        sum[4 * j + i] *= scale;
        sum[4 * j + 2 + i] *= scale;
      }
    }
  }

  const AtomArgs& q_;
  const Ring& ring_;
  const int lane_;
  const uint32_t base_;
  int atom_[2];  // where the warp's atoms begin in a stage
  // These are shared addresses in stage 0: of the barrier, of the lane's words of both atoms, and
  // of its row of x for even and for odd pieces of 32 columns, in the 128-byte swizzle.
  uint32_t full_, words_[2], x_[2];
};

}  // namespace skiff::cuda::atoms
