// ops/cuda/quant/float8_kernel.cuh -- the streamed GEMM (linear/stream.h) of dense e4m3 weights
// that lie row by row: the same tiles, cuts and outputs. wgmma reads both operands from shared
// memory, and the sums of each chunk of 128 columns are scaled before they are added up.
#pragma once
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_float8.cuh"
#include "ops/cuda/linear/stream_load.cuh"
#include "ops/cuda/linear/stream_share.cuh"
#include "ops/cuda/linear/stream_store.cuh"

namespace skiff::cuda::float8 {

using namespace streamed;

constexpr int kColumns = 128;  // columns of a chunk: a row of it has 128 bytes
constexpr int kFloat8Threads = kConsumers + 128;
// Where many rows need many sums, the warpgroup that loads gives its registers to the others.
constexpr int kLoaderRegisters = 40, kMultiplierRegisters = 232;

struct Float8Args {
  const float* scales;  // [features / 128][scale_stride]
  int64_t scale_stride;
  int up_row;  // gated: the row of scales where those of what the gate lets through begin
  const float* x_scales;  // [chunks][x_scale_stride]
  int64_t x_scale_stride;
};

// A stage has 128 weight rows, the rows of x, and their scales.
template <int N>
struct Float8Ring {
  static constexpr int kWeightBytes = kTileRows * kColumns, kXBytes = N * kColumns;
  static constexpr int kScaleBytes = N * static_cast<int>(sizeof(float));
  static constexpr int kStageBytes = (kWeightBytes + kXBytes + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = 205 * 1024 / kStageBytes < 16 ? 205 * 1024 / kStageBytes : 16;
  static constexpr size_t kRingBytes = size_t{kStages} * kStageBytes;
  static constexpr size_t kSharedBytes = 1024 + kRingBytes + line_bytes(N);

  uint32_t memory, full, empty;  // shared addresses

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t rows(int stage) const { return weights(stage) + kWeightBytes; }
  __device__ uint32_t scales(int stage) const { return rows(stage) + kXBytes; }
};

template <int N, bool kGated>
struct Float8Weights {
  const CUtensorMap& map;  // its elements are pairs of weights
  const StreamArgs& a;

  __device__ void operator()(const Float8Ring<N>& ring, const TileSlice& s, int chunk,
                             int stage) const {
    const uint32_t barrier = ring.full + 8 * stage, to = ring.weights(stage);
    barrier_expect(barrier, Float8Ring<N>::kWeightBytes);
    if constexpr (kGated)
      copy_tile(to, map, barrier, chunk * (kColumns / 2), 0, 0, s.tile * (kTileRows / 16), 0,
                a.keep_weights);
    else
      copy_tile(to, map, barrier, chunk * (kColumns / 2), s.tile * kTileRows, 0, 0, 0,
                a.keep_weights);
  }
};

template <int N>
struct Float8X {
  static constexpr int kBox = N < kBoxRows ? N : kBoxRows;

  const CUtensorMap& map;  // its boxes have 128 bytes of kBox rows
  const Float8Args& q;

  // Rows beyond those of the job are left out, in whole boxes. A job begins at a multiple of N.
  __device__ void operator()(const Float8Ring<N>& ring, const TileSlice& s, int chunk,
                             int stage) const {
    constexpr int kBoxBytes = kBox * kColumns;
    const int boxes = (s.job.rows + kBox - 1) / kBox;
    const uint32_t barrier = ring.full + 8 * stage, to = ring.rows(stage);
    barrier_expect(barrier, boxes * kBoxBytes + Float8Ring<N>::kScaleBytes);
    for (int i = 0; i < boxes; ++i)
      copy_tile(to + i * kBoxBytes, map, barrier, chunk * (kColumns / 2), s.job.first + i * kBox);
    copy_bytes(ring.scales(stage), q.x_scales + chunk * q.x_scale_stride + s.job.first,
               Float8Ring<N>::kScaleBytes, barrier, Keep::kNormal);
  }
};

__device__ __forceinline__ float2 load_shared_pair(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
  return v;
}

// A block's 128 weight rows by up to N rows of x; a warpgroup has 64 of the weight rows.
template <int N, bool kGated>
class Float8Multiplier {
 public:
  using Ring = Float8Ring<N>;
  using Turn = RingTurn<Ring::kStages>;

  __device__ Float8Multiplier(const Float8Args& q, const Ring& ring)
      : q_(q), ring_(ring), lane_(threadIdx.x % 32), group_(threadIdx.x / 128) {}

  // sum = the slice's sums, scaled; wgmma.cuh says which thread holds which.
  __device__ void run(float (&sum)[N / 2], const TileSlice& s, Turn& turn) const {
    const int block = kGated ? s.tile * (kTileRows / 2) / kColumns : s.tile;
    const float* first = q_.scales + block * q_.scale_stride;
    const float* second = kGated ? first + q_.up_row * q_.scale_stride : first;
#pragma unroll
    for (float& v : sum) v = 0;
    for (int c = s.begin; c < s.end; ++c) {
      const float scale[2] = {__ldg(first + c), __ldg(second + c)};  // those of the lane's two rows
      float part[N / 2];
      multiply(part, turn);
      promote(sum, part, scale, turn.stage);
      __syncwarp();
      if (lane_ == 0) barrier_arrive(ring_.empty + 8 * turn.stage);
      turn.advance();
    }
  }

 private:
  // part = the sums of a chunk. The other warpgroup keeps the tensor cores busy while they are
  // scaled.
  __device__ __forceinline__ void multiply(float (&part)[N / 2], const Turn& turn) const {
    barrier_wait(ring_.full + 8 * turn.stage, turn.parity);
    const uint64_t w = wgmma_operand(ring_.weights(turn.stage) + group_ * (Ring::kWeightBytes / 2));
    const uint64_t x = wgmma_operand(ring_.rows(turn.stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kColumns / 32; ++k)
      wgmma_float8<N>(part, w + k * kWgmmaStep, x + k * kWgmmaStep, k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    settle(part);
  }

  // sum += the part's sums, times the scales of the weights and of the rows of x.
  __device__ __forceinline__ void promote(float (&sum)[N / 2], const float (&part)[N / 2],
                                          const float (&scale)[2], int stage) const {
    const uint32_t of_rows = ring_.scales(stage) + 8 * (lane_ % 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 x = load_shared_pair(of_rows + 32 * j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = 4 * j + 2 * h;
        sum[at] = fmaf(part[at], scale[h] * x.x, sum[at]);
        sum[at + 1] = fmaf(part[at + 1], scale[h] * x.y, sum[at + 1]);
      }
    }
  }

  const Float8Args& q_;
  const Ring& ring_;
  const int lane_, group_;
};

template <int N, bool kGated>
__device__ void consume(const StreamArgs& a, const Float8Args& q, const Float8Ring<N>& ring,
                        ClaimQueue& queue, char* staging) {
  wait_for_previous();
  SliceWalk<N, Walker::kWarps> slices(a, queue);
  LineStaging lines(staging);
  Epilogue<N, kGated> store = {a, &lines};
  Float8Multiplier<N, kGated> multiplier(q, ring);
  TileSlice s;
  RingTurn<Float8Ring<N>::kStages> turn;
  float sum[N / 2];
  while (slices.next(&s)) {
    multiplier.run(sum, s, turn);
    if (s.is_cut(a) && !SharedTile<N>{a}.add(sum, s)) continue;
    store.store_tile(sum, s);
  }
}

template <int N, bool kGated>
__global__ void __launch_bounds__(kFloat8Threads, 1)
    float8_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a,
                  const __grid_constant__ Float8Args q) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using Ring = Float8Ring<N>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  __shared__ ClaimQueue queue;
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 2);
      barrier_init(ring.empty + 8 * i, kConsumers / 32);
    }
    queue.init(1 + kConsumers / 32);
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < kConsumers / 32) {
    if constexpr (N >= 64) more_registers<kMultiplierRegisters>();
    consume<N, kGated>(a, q, ring, queue, memory + Ring::kRingBytes);
  } else {
    if constexpr (N >= 64) fewer_registers<kLoaderRegisters>();
    if (warp == kConsumers / 32 && elected())
      load_weights<N>(a, queue, ring, Float8Weights<N, kGated>{w_map, a});
    else if (warp == kConsumers / 32 + 1 && elected())
      load_rows<N>(a, queue, ring, Float8X<N>{x_map, q});
  }
#endif
}

}  // namespace skiff::cuda::float8
