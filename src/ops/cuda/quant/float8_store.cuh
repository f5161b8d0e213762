// ops/cuda/quant/float8_store.cuh -- the outputs of a tile where rows of x are the M side of wgmma:
// a warp has 16 rows of all columns, so that it writes whole lines alone.
#pragma once
#include "ops/cuda/activation.cuh"
#include "ops/cuda/linear/stream_lines.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::float8 {

using namespace streamed;

// stmatrix of four matrices of 8 x 8 elements: stream_lines.cuh has it transposed.
__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// The sums of 128 rows by 128 weight rows; where gated, pieces of eight weight rows are by turns of
// the gate and of what it lets through.
template <bool kGated>
class RowsEpilogue {
 public:
  static constexpr int kSums = 64, kWide = 64;  // sums of a thread; columns that are staged at once
  static constexpr int kFeatures = kGated ? kTileRows / 2 : kTileRows;  // columns of a tile
  static constexpr int kWarpRows = 16, kPitch = kWide * 2 + 16;
  static constexpr int kWarpBytes = kWarpRows * kPitch;
  static_assert(kConsumers / 32 * kWarpBytes <= static_cast<int>(line_bytes(128)));

  // `staging`: shared memory of line_bytes(128), which other tiles of the block may use by turns.
  __device__ RowsEpilogue(const StreamArgs& a, char* staging)
      : a_(a),
        staging_(staging + threadIdx.x / 32 * kWarpBytes),
        row_(static_cast<int>(threadIdx.x / 32) * kWarpRows),
        lane_(threadIdx.x % 32) {}

  // The sums are not changed, so that the compiler sees only wgmma write them.
  __device__ void store_tile(const float (&sum)[kSums], const TileSlice& s) const {
    if (!kGated || a_.act == Act::kSilu)
      store_as<Act::kSilu>(sum, s);
    else
      store_as<Act::kGelu>(sum, s);
  }

 private:
  template <Act kAct>
  __device__ void store_as(const float (&sum)[kSums], const TileSlice& s) const {
    if (!kGated && a_.out_f32) return store_each<float, kAct>(sum, s);
    if (!a_.out_lines) return store_each<__nv_bfloat16, kAct>(sum, s);
    // Other tiles have buffers of a whole warpgroup here.
    const int group = static_cast<int>(threadIdx.x / 128);
    named_sync(1 + group, 128);
    store_lines<kAct>(sum, s);
    named_sync(1 + group, 128);
  }
  template <Act kAct>
  __device__ void store_lines(const float (&sum)[kSums], const TileSlice& s) const {
    if (row_ >= s.job.rows) return;
#pragma unroll
    for (int first = 0; first < kFeatures; first += kWide) {
      stage<kAct>(sum, s, first);
      __syncwarp();
      copy(s, first);
      __syncwarp();
    }
  }

  // Column `column` + {0, 1} of the lane's row `h`, of two; columns are counted within the tile and
  // are those of lane % 4 == 0.
  template <Act kAct>
  __device__ float2 pair(const float (&sum)[kSums], const TileSlice& s, int column, int h) const {
    const int at = (kGated ? 8 : 4) * (column / 8) + 2 * h;
    if constexpr (kGated)
      return {activate(sum[at], kAct) * sum[at + 4], activate(sum[at + 1], kAct) * sum[at + 5]};
    const int f = s.tile * kFeatures + column + 2 * (lane_ % 4);
    return {sum[at] + bias(f), sum[at + 1] + bias(f + 1)};
  }
  __device__ float bias(int f) const { return a_.bias && f < a_.features ? a_.bias[f] : 0.0f; }

  template <Act kAct>
  __device__ void stage(const float (&sum)[kSums], const TileSlice& s, int first) const {
    const int row = lane_ % 16, piece = lane_ / 16;
    const uint32_t to = shared_address(staging_ + row * kPitch + 16 * piece);
#pragma unroll
    for (int column = 0; column < kWide; column += 16) {
      uint32_t pairs[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float2 v = pair<kAct>(sum, s, first + column + m / 2 * 8, m % 2);
        pairs[m] = pack_bf16(v.x, v.y);
      }
      store_matrices(to + 2 * column, pairs);
    }
  }

  __device__ void copy(const TileSlice& s, int first) const {
    constexpr int kPiece = 8, kPieces = kWide / kPiece;
    const int f = s.tile * kFeatures + first + lane_ % kPieces * kPiece;
    if (f >= a_.features) return;
#pragma unroll
    for (int r = lane_ / kPieces; r < kWarpRows; r += 32 / kPieces) {
      if (row_ + r >= s.job.rows) return;
      auto* to = static_cast<__nv_bfloat16*>(a_.out) + (s.job.first + row_ + r) * a_.out_stride + f;
      *reinterpret_cast<uint4*>(to) =
          *reinterpret_cast<const uint4*>(staging_ + r * kPitch + lane_ % kPieces * kPiece * 2);
    }
  }

  template <class Out, Act kAct>
  __device__ void store_each(const float (&sum)[kSums], const TileSlice& s) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_ + lane_ / 4 + 8 * h;
      if (row >= s.job.rows) return;
      Out* to = static_cast<Out*>(a_.out) + (s.job.first + row) * a_.out_stride;
#pragma unroll
      for (int column = 0; column < kFeatures; column += 8) {
        const int f = s.tile * kFeatures + column + 2 * (lane_ % 4);
        const float2 v = pair<kAct>(sum, s, column, h);
        if (f < a_.features) put(to + f, v.x);
        if (f + 1 < a_.features) put(to + f + 1, v.y);
      }
    }
  }

  const StreamArgs& a_;
  char* const staging_;
  const int row_, lane_;
};

}  // namespace skiff::cuda::float8
