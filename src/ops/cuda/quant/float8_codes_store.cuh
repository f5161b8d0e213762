// ops/cuda/quant/float8_codes_store.cuh -- outputs of a gated GEMM as the next GEMM meets them: two
// neighbouring tiles have the 128 columns of a group, whose e4m3 codes and scale leave instead of
// bf16 rows.
#pragma once
#include "ops/cuda/activation.cuh"
#include "ops/cuda/linear/stream_args.cuh"
#include "ops/cuda/quant/float8_args.cuh"
#include "ops/cuda/quant/round_group.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::float8 {

// The sums of 128 rows by two gated tiles of 128 weight rows, where rows of x are the M side of
// wgmma (float8_store.cuh): a warp has 16 rows of all columns, of which four neighbouring lanes
// have two. Outputs are rounded to bf16 first, so that codes and scales are those of bf16 rows that
// meet() rounds.
class CodesEpilogue {
 public:
  static constexpr int kSums = 64, kTiles = 2;  // a thread's sums of a tile
  static constexpr int kWarpRows = 16, kPitch = kRoundGroup + 16;
  static constexpr int kWarpBytes = kWarpRows * kPitch;
  static_assert(kConsumers / 32 * kWarpBytes <= static_cast<int>(line_bytes(128)));
  static_assert(kTiles * kTileRows / 2 == kRoundGroup);

  // `staging`: shared memory of line_bytes(128), which nothing else uses.
  __device__ CodesEpilogue(const StreamArgs& a, const Float8Args& q, char* staging)
      : a_(a),
        q_(q),
        staging_(staging + threadIdx.x / 32 * kWarpBytes),
        row_(static_cast<int>(threadIdx.x / 32) * kWarpRows),
        lane_(threadIdx.x % 32) {}

  // The sums are not changed, so that the compiler sees only wgmma write them.
  __device__ void store_pair(const float (&sum)[kTiles][kSums], const TileSlice& s) const {
    if (row_ >= s.job.rows) return;
    if (a_.act == Act::kSilu)
      stage<Act::kSilu>(sum, s);
    else
      stage<Act::kGelu>(sum, s);
    __syncwarp();
    copy(s);
    __syncwarp();
  }

 private:
  static constexpr int kPieces = kTiles * kTileRows / 16;  // each has eight columns
  static constexpr int kValues = 2 * kPieces;              // a lane's columns of a row

  template <Act kAct>
  __device__ void stage(const float (&sum)[kTiles][kSums], const TileSlice& s) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float value[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const float(&of)[kSums] = sum[i / (kValues / kTiles)];
        const int at = i % (kValues / kTiles) / 2 * 8 + 2 * h + i % 2;
        value[i] = to_float(from_float<__nv_bfloat16>(activate(of[at], kAct) * of[at + 4]));
      }
      const GroupCodes<kValues> as = codes_of_group(value);
      const int row = lane_ / 4 + 8 * h;
      char* to = staging_ + row * kPitch + lane_ % 4 * 2;
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        *reinterpret_cast<uint16_t*>(to + 8 * p) =
            static_cast<uint16_t>(as.codes[p / 2] >> p % 2 * 16);
      if (lane_ % 4 == 0 && row_ + row < s.job.rows)
        q_.out_scales[s.tile * q_.out_scale_stride + s.job.first + row_ + row] = as.scale;
    }
  }

  __device__ void copy(const TileSlice& s) const {
    constexpr int kPiece = 16, kLanes = kRoundGroup / kPiece;
    auto* out = static_cast<char*>(a_.out) + s.tile * kRoundGroup + lane_ % kLanes * kPiece;
#pragma unroll
    for (int r = lane_ / kLanes; r < kWarpRows; r += 32 / kLanes) {
      if (row_ + r >= s.job.rows) return;
      *reinterpret_cast<uint4*>(out + (s.job.first + row_ + r) * q_.out_pitch) =
          *reinterpret_cast<const uint4*>(staging_ + r * kPitch + lane_ % kLanes * kPiece);
    }
  }

  const StreamArgs& a_;
  const Float8Args& q_;
  char* const staging_;
  const int row_, lane_;
};

}  // namespace skiff::cuda::float8
