// ops/cuda/quant/float8_multiply.cuh -- the main loop of the streamed GEMM of e4m3 weights that lie
// row by row. wgmma reads both operands from shared memory, and the sums of each chunk of 128
// columns are scaled before they are added up.
#pragma once
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_float8.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/quant/float8_args.cuh"
#include "ops/cuda/quant/shared_loads.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::float8 {

// With so many rows, rows of x are the M side of wgmma. A thread then has sums of two of them,
// whose scales it loads at once, where otherwise it has sums of a quarter of them.
constexpr bool rows_lead(int rows) { return rows == 2 * 64; }

// The 128 weight rows of each of a block's tiles by up to N rows of x, which may be fewer than a
// stage of the ring has room for. A warpgroup has 64 of the weight rows, or, where they lead, of
// the rows of x.
template <class Ring, int N, bool kGated>
class Float8Multiplier {
 public:
  using Turn = RingTurn<Ring::kStages>;
  static constexpr int kTiles = Ring::kTiles;
  using Sums = float[N / 2];  // a thread's sums of one tile

  __device__ Float8Multiplier(const StreamArgs& a, const Float8Args& q, const Ring& ring)
      : a_(a),
        q_(q),
        ring_(ring),
        lane_(threadIdx.x % 32),
        second_(kGated ? q.up_row * q.scale_stride : q.scale_stride) {
    const auto group = static_cast<uint32_t>(threadIdx.x / 128);
    const uint64_t weights = wgmma_operand(ring.weights(0)), rows = wgmma_operand(ring.rows(0));
    operand_high_ = static_cast<uint32_t>(weights >> 32);  // both operands have this word
    m_ = kept(static_cast<uint32_t>(rows_lead(N) ? rows : weights) + group * (64 * kColumns >> 4));
    n_ = kept(static_cast<uint32_t>(rows_lead(N) ? weights : rows));
  }

  // sum = the slice's sums, scaled; wgmma.cuh says which thread holds which.
  __device__ void run(Sums (&sum)[kTiles], const TileSlice& s, Turn& turn) const {
    const float* from = first_scale(s);
    WeightScales next = load_scales(from);
#pragma unroll
    for (Sums& tile : sum)
#pragma unroll
      for (float& v : tile) v = 0;
    const uint32_t of_rows = row_scales(s);
    for (int c = s.begin; c < s.end; ++c) {
      const WeightScales scale = next;
      const uint32_t x_scales = of_rows + turn.stage * Ring::kStageBytes;
      barrier_wait(ring_.full + 8 * turn.stage, turn.parity);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        Sums part;
        multiply(part, turn.stage, t);
        if (t == 0 && c + 1 < s.end) next = load_scales(++from);
        const Scales by = scales_of(scale, t);
        const int done = t + 1 == kTiles ? turn.stage : -1;
        if constexpr (rows_lead(N))
          promote_rows(sum[t], part, by, x_scales, done);
        else
          promote(sum[t], part, by, x_scales, done);
      }
      turn.advance();
    }
  }

  // Lets the stages of a slice go by, of which the warpgroup has no row.
  __device__ void pass(const TileSlice& s, Turn& turn) const {
    for (int c = s.begin; c < s.end; ++c, turn.advance()) {
      barrier_wait(ring_.full + 8 * turn.stage, turn.parity);
      release(turn.stage);
    }
  }

 private:
  // The scales of a chunk: gated, those of the gate and of what it lets through, which all tiles
  // share; otherwise one for each tile.
  static constexpr int kScales = kGated ? 2 : kTiles;
  struct WeightScales {
    float at[kScales];
  };
  // Those of a tile, for the lane's first row and its second, or for its pieces by turns.
  struct Scales {
    float at[2];
  };
  static __device__ Scales scales_of(const WeightScales& s, int tile) {
    if constexpr (kGated) return {s.at[0], s.at[1]};
    return {s.at[tile], s.at[tile]};
  }

  __device__ const float* first_scale(const TileSlice& s) const {
    const int tile = s.tile * kTiles, block = kGated ? tile * (kTileRows / 2) / kColumns : tile;
    return q_.scales + s.job.expert * q_.expert_scales + block * q_.scale_stride + s.begin;
  }
  __device__ __forceinline__ WeightScales load_scales(const float* from) const {
    if constexpr (kScales == 2)
      return {__ldg(from), __ldg(from + second_)};
    else
      return {__ldg(from)};
  }

  // The shared address, in stage 0, of the first scale that the thread needs.
  __device__ uint32_t row_scales(const TileSlice& s) const {
    const int own =
        rows_lead(N) ? static_cast<int>(threadIdx.x / 32) * 16 + lane_ / 4 : 2 * (lane_ % 4);
    return ring_.scales(0) + 4 * (first_row(a_, s) % 4 + own);
  }

  // part = a tile's sums of a chunk, once the wgmmas are waited for. The other warpgroup keeps the
  // tensor cores busy while they are scaled.
  __device__ __forceinline__ void multiply(Sums& part, int stage, int tile) const {
    const uint32_t at = stage * (Ring::kStageBytes >> 4);
    const uint32_t weights = at + tile * (Ring::kTileBytes >> 4);
    const uint32_t m = m_ + (rows_lead(N) ? at : weights), n = n_ + (rows_lead(N) ? weights : at);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kColumns / 32; ++k)
      wgmma_float8<N>(part, operand(m, k), operand(n, k), k > 0);
    wgmma_commit();
  }
  // The operand of step k. Shared addresses, and so their sums here, fit the field for them.
  __device__ __forceinline__ uint64_t operand(uint32_t low, int k) const {
    constexpr auto kStep = static_cast<uint32_t>(kWgmmaStep);
    return static_cast<uint64_t>(operand_high_) << 32 | (low + k * kStep);
  }

  // Gives a stage back, unless it is below 0.
  __device__ __forceinline__ void release(int stage) const {
    if (stage < 0) return;
    __syncwarp();
    if (lane_ == 0) barrier_arrive(ring_.empty + 8 * stage);
  }

  // sum += the part's sums, times the scales of the weights and of the rows of x.
  __device__ __forceinline__ void promote(Sums& sum, Sums& part, const Scales& scale,
                                          uint32_t x_scales, int done) const {
    wgmma_wait<0>();
    settle(part);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = atoms::load_shared_float(x_scales + 4 * (8 * j + i));
        float by[2] = {scale.at[0] * x};
        by[1] = kGated ? scale.at[1] * x : by[0];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int at = 4 * j + 2 * h + i;
          sum[at] = fmaf(part[at], by[h], sum[at]);
        }
      }
    }
    release(done);
  }
  // Does what promote() does where rows lead: pieces of eight weight rows belong by turns to the
  // gate and to what it lets through.
  __device__ __forceinline__ void promote_rows(Sums& sum, Sums& part, const Scales& scale,
                                               uint32_t x_scales, int done) const {
    float by[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x = atoms::load_shared_float(x_scales + 4 * 8 * h);
      by[0][h] = scale.at[0] * x;
      by[1][h] = kGated ? scale.at[1] * x : by[0][h];
    }
    wgmma_wait<0>();
    settle(part);
    release(done);
#pragma unroll
    for (int at = 0; at < N / 2; ++at)
      sum[at] = fmaf(part[at], by[at / 4 % 2][at / 2 % 2], sum[at]);
  }

  const StreamArgs& a_;
  const Float8Args& q_;
  const Ring& ring_;
  const int lane_;
  const int64_t second_;           // gated: how far the scales of what the gate lets through lie
  uint32_t m_, n_, operand_high_;  // words of the operands of a warpgroup in stage 0
};

}  // namespace skiff::cuda::float8
