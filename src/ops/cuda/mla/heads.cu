// GEMMs of all heads. heads_by_tiles: a block multiplies 64 rows by 128 features of a head on the
// tensor cores (mma.sync), or by 32 where those would leave half of the multiprocessors idle, with
// rows and weights on their way through stages of shared memory. Both add in the same order.
// heads_by_elements: a thread for each output.
#include <cuda_bf16.h>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda {
namespace {

struct HeadArgs {
  void* out;
  const void *x, *w;
  int64_t out_stride, x_stride;  // elements from one head to the next
  int rows, heads, in, features;
  bool packed;

  // The weight of a head that multiplies element `col` of x, for feature `row`.
  __device__ int64_t weight_at(int head, int row, int col) const {
    const int64_t before = int64_t{head} * features * in;
    return before + (packed ? tile_index(row, col, features) : int64_t{row} * in + col);
  }
};

constexpr int kRows = 64, kDepth = 64;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
template <int kFeatures>
struct TileStage {
  uint8_t x[kRows * kDepth * 2], w[kFeatures * kDepth * 2];
  static constexpr int kStages = kFeatures == 32 ? 8 : 3;
  static constexpr int kTiles = kFeatures / kWarps / 8;  // a warp has so many, of 8 features each
};
// The sums of a warp: all rows and a part of the features.
template <int kTiles>
using TileSums = float[kRows / 16][kTiles][4];

__device__ __forceinline__ int chunk_offset(int row, int chunk) {
  return row * 128 + ((chunk ^ (row % 8)) * 16);
}

// Copies 16 bytes, or zeros.
__device__ __forceinline__ void copy_chunk(uint8_t* to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
               : "memory");
}

template <int kFeatures>
__device__ void load_weights(const HeadArgs& p, int head, int feature0, int k0,
                             TileStage<kFeatures>& to) {
  const auto* w = static_cast<const __nv_bfloat16*>(p.w);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kFeatures * kDepth / 8; i += kThreads) {
    const int row = i / 8, col = k0 + i % 8 * 8, feature = feature0 + row;
    const bool real = feature < p.features && col < p.in;
    copy_chunk(to.w + chunk_offset(row, i % 8), real ? w + p.weight_at(head, feature, col) : w,
               real);
  }
}

template <class Stage>
__device__ void load_rows(const HeadArgs& p, int head, int row0, int k0, Stage& to) {
  const auto* x = static_cast<const __nv_bfloat16*>(p.x);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDepth / 8; i += kThreads) {
    const int row = i / 8, col = k0 + i % 8 * 8;
    const bool real = row0 + row < p.rows && col < p.in;
    const int64_t at = (int64_t{row0 + row} * p.heads + head) * p.x_stride + col;
    copy_chunk(to.x + chunk_offset(row, i % 8), real ? x + at : x, real);
  }
}

// The weights of a warp's features for 16 columns, two registers for each tile.
template <int kFeatures>
__device__ __forceinline__ void load_tiles(const TileStage<kFeatures>& stage, int k,
                                           uint32_t (&b)[TileStage<kFeatures>::kTiles][2]) {
  constexpr int kTiles = TileStage<kFeatures>::kTiles;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTiles; n += 2) {
    uint32_t four[4];
    const int tile = warp * kTiles + n + (kTiles > 1 ? lane / 16 : 0),
              feature = tile * 8 + lane % 8;
    load_matrices(four, shared_address(stage.w + chunk_offset(feature, 2 * k + lane / 8 % 2)));
    b[n][0] = four[0], b[n][1] = four[1];
    if constexpr (kTiles > 1) b[n + 1][0] = four[2], b[n + 1][1] = four[3];
  }
}

// Adds a stage.
template <int kFeatures>
__device__ __forceinline__ void multiply(const TileStage<kFeatures>& stage, int row_tiles,
                                         TileSums<TileStage<kFeatures>::kTiles>& sum) {
  constexpr int kTiles = TileStage<kFeatures>::kTiles;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    uint32_t b[kTiles][2];
    load_tiles<kFeatures>(stage, k, b);
#pragma unroll
    for (int m = 0; m < kRows / 16; ++m) {
      if (m >= row_tiles) break;
      uint32_t a[4];
      load_matrices(a,
                    shared_address(stage.x + chunk_offset(m * 16 + lane % 16, 2 * k + lane / 16)));
#pragma unroll
      for (int n = 0; n < kTiles; ++n) mma_bf16(sum[m][n], a, b[n][0], b[n][1]);
    }
  }
}

template <int kTiles>
__device__ void write(const HeadArgs& p, int head, int row0, int feature0,
                      const TileSums<kTiles>& sum) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto* out = static_cast<__nv_bfloat16*>(p.out);
#pragma unroll
  for (int m = 0; m < kRows / 16; ++m) {
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      const int row = row0 + m * 16 + lane / 4 + 8 * second;
      if (row >= p.rows) continue;
      __nv_bfloat16* to = out + (int64_t{row} * p.heads + head) * p.out_stride;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int feature = feature0 + (warp * kTiles + n) * 8 + lane % 4 * 2;
        if (feature < p.features)
          *reinterpret_cast<uint32_t*>(to + feature) =
              pack_bf16(sum[m][n][2 * second], sum[m][n][2 * second + 1]);
      }
    }
  }
}

template <int kFeatures>
__global__ void __launch_bounds__(kThreads) tile_kernel(const HeadArgs p) {
  using Stage = TileStage<kFeatures>;
  constexpr int kStages = Stage::kStages;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto* stages = reinterpret_cast<Stage*>(memory);
  const int head = static_cast<int>(blockIdx.y),
            feature0 = static_cast<int>(blockIdx.x) * kFeatures;
  const int row0 = static_cast<int>(blockIdx.z) * kRows;
  const int steps = (p.in + kDepth - 1) / kDepth;
  let_next_start();
  // Weights, which no kernel writes, are loaded before the wait.
  for (int i = 0; i < kStages - 1 && i < steps; ++i)
    load_weights(p, head, feature0, i * kDepth, stages[i]);
  wait_for_previous();
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < steps) load_rows(p, head, row0, i * kDepth, stages[i]);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  TileSums<Stage::kTiles> sum = {};
  const int row_tiles = min(kRows, p.rows - row0 + 15) / 16;
  for (int i = 0; i < steps; ++i) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    if (const int next = i + kStages - 1; next < steps) {
      load_weights(p, head, feature0, next * kDepth, stages[next % kStages]);
      load_rows(p, head, row0, next * kDepth, stages[next % kStages]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    multiply<kFeatures>(stages[i % kStages], row_tiles, sum);
  }
  write<Stage::kTiles>(p, head, row0, feature0, sum);
}

template <class T>
__global__ void element_kernel(const HeadArgs p) {
  wait_for_previous();
  let_next_start();
  const int feature = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int head = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  if (feature >= p.features) return;
  const int64_t vector = int64_t{row} * p.heads + head;
  const T* x = static_cast<const T*>(p.x) + vector * p.x_stride;
  float sum = 0;
  for (int i = 0; i < p.in; ++i)
    sum = fmaf(to_float(x[i]), to_float(static_cast<const T*>(p.w)[p.weight_at(head, feature, i)]),
               sum);
  static_cast<T*>(p.out)[vector * p.out_stride + feature] = from_float<T>(sum);
}

HeadArgs args_of(const Tensor& out, const Tensor& x, const Linear& w) {
  return {.out = out.data,
          .x = x.data,
          .w = w.weight.data,
          .out_stride = out.row_stride,
          .x_stride = x.row_stride,
          .rows = static_cast<int>(x.rows() / w.experts),
          .heads = static_cast<int>(w.experts),
          .in = static_cast<int>(x.cols()),
          .features = static_cast<int>(out.cols()),
          .packed = is_tiles(w)};
}

}  // namespace

bool heads_by_tiles_takes(const Tensor& out, const Tensor& x, const Linear& w) {
  return x.dtype == DType::kBF16 && out.dtype == DType::kBF16 &&
         (is_plain(w, DType::kBF16) || is_tiles(w)) && is_aligned(x) && is_aligned(w.weight.data) &&
         is_aligned(out, 4) && x.cols() % 8 == 0 && out.cols() % 2 == 0;
}

void heads_by_tiles(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream) {
  static const int processors = attribute(cudaDevAttrMultiProcessorCount);
  const HeadArgs args = args_of(out, x, w);
  const auto grid = [&](int features) {
    const auto tiles = [](int n, int of) { return static_cast<unsigned>((n + of - 1) / of); };
    return dim3(tiles(args.features, features), static_cast<unsigned>(args.heads),
                tiles(args.rows, kRows));
  };
  const auto start = [&]<int kFeatures>(std::integral_constant<int, kFeatures>) {
    using Stage = TileStage<kFeatures>;
    const Launch how = {.grid = grid(kFeatures),
                        .block = dim3(kThreads),
                        .shared = Stage::kStages * sizeof(Stage),
                        .stream = stream};
    allow_shared(tile_kernel<kFeatures>, how.shared);
    launch(tile_kernel<kFeatures>, how, args);
  };
  const dim3 wide = grid(128);
  if (2 * static_cast<int>(wide.x * wide.y * wide.z) <= processors)
    start(std::integral_constant<int, 32>());
  else
    start(std::integral_constant<int, 128>());
}

void heads_by_elements(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream) {
  HeadArgs args = args_of(out, x, w);
  constexpr int kBlock = 128, kMostRows = 65535;
  const auto* from = static_cast<const std::byte*>(x.data);
  auto* to = static_cast<std::byte*>(out.data);
  for (int row = 0; row < args.rows; row += kMostRows) {
    HeadArgs part = args;
    part.rows = std::min(kMostRows, args.rows - row);
    part.x = from + byte_size(x.dtype, int64_t{row} * args.heads * args.x_stride);
    part.out = to + byte_size(out.dtype, int64_t{row} * args.heads * args.out_stride);
    const Launch how = {
        .grid = dim3(static_cast<unsigned>((args.features + kBlock - 1) / kBlock),
                     static_cast<unsigned>(args.heads), static_cast<unsigned>(part.rows)),
        .block = dim3(kBlock),
        .stream = stream};
    x.dtype == DType::kF32 ? launch(element_kernel<float>, how, part)
                           : launch(element_kernel<__nv_bfloat16>, how, part);
  }
}

}  // namespace skiff::cuda
