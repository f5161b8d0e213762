#include "ops/cuda/align.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/resident.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kWide = 8;           // elements that a lane loads at a time
constexpr int kStep = 32 * kWide;  // elements that a warp loads at a time
constexpr int kMostSteps = 16;     // the most steps of a row, whose x is kept in registers
constexpr int kMostBytes = 208 << 10;
constexpr int kMostRows = 128;  // the most rows of a block
constexpr int kTurns = kMostRows / kWarps;

struct Resident {
  void* out;
  bool out_f32;
  const __nv_bfloat16 *x, *w;
  const float* bias;
  int features, in, rows_per_block;
};

// The rows of x that a lane meets, as f32.
template <int kSteps>
__device__ void load_x(float (&x)[kSteps][kWide], const Resident& r, int lane) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int at = s * kStep + lane * kWide;
    if (at < r.in) {
      load<kWide>(x[s], r.x + at);
    } else {
#pragma unroll
      for (int i = 0; i < kWide; ++i) x[s][i] = 0;
    }
  }
}

template <int kSteps>
__device__ float dot(const float (&x)[kSteps][kWide], const __nv_bfloat16* w, int in, int lane) {
  float sum[2] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int at = s * kStep + lane * kWide;
    if (at >= in) continue;
    float v[kWide];
    load<kWide>(v, w + at);
#pragma unroll
    for (int i = 0; i < kWide; ++i) sum[i % 2] = fmaf(v[i], x[s][i], sum[i % 2]);
  }
  return warp_sum(sum[0] + sum[1]);
}

// Rows t * kWarps to (t + 1) * kWarps of a block, one for each warp, are turn t; they are copied
// together.
template <int kSteps>
__global__ void __launch_bounds__(kThreads) resident_kernel(const __grid_constant__ Resident r) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char memory[];
  __shared__ alignas(8) uint64_t barriers[kTurns];
  const int first = static_cast<int>(blockIdx.x) * r.rows_per_block;
  const int rows = min(r.rows_per_block, r.features - first);
  if (threadIdx.x == 0) {
    const int turns = (rows + kWarps - 1) / kWarps, row_bytes = r.in * 2;
    for (int t = 0; t < turns; ++t) barrier_init(shared_address(barriers + t), 1);
    barrier_init_done();
    for (int t = 0; t < turns; ++t) {
      const int row = t * kWarps, bytes = min(kWarps, rows - row) * row_bytes;
      const uint32_t barrier = shared_address(barriers + t);
      barrier_expect(barrier, bytes);
      copy_bytes(shared_address(memory) + row * row_bytes, r.w + int64_t{first + row} * r.in, bytes,
                 barrier, Keep::kFirstToGo);
    }
  }
  let_next_start();
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float x[kSteps][kWide];
  wait_for_previous();
  load_x(x, r, lane);
  for (int row = warp; row < rows; row += kWarps) {
    barrier_wait(shared_address(barriers + row / kWarps), 0);
    const float sum =
        dot(x, reinterpret_cast<const __nv_bfloat16*>(memory) + int64_t{row} * r.in, r.in, lane);
    if (lane == 0) put(r.out, r.out_f32, first + row, sum + (r.bias ? r.bias[first + row] : 0.0f));
  }
#endif
}

template <class F>
void for_each_kernel(F f) {
  f(resident_kernel<4>, 4), f(resident_kernel<8>, 8), f(resident_kernel<10>, 10);
  f(resident_kernel<14>, 14), f(resident_kernel<kMostSteps>, kMostSteps);
}

}  // namespace

ResidentProducts::ResidentProducts(bool portable) {
  if (portable || !current_runs_hopper_kernels()) return;
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount);
  for_each_kernel([](auto kernel, int) { allow_shared(kernel, kMostBytes); });
}

int ResidentProducts::rows_per_block(const Linear& w) const {
  return static_cast<int>((features(w) + multiprocessors_ - 1) / multiprocessors_);
}

bool ResidentProducts::takes(const Tensor& x, const Linear& w) const {
  return multiprocessors_ > 0 && x.rows() == 1 && x.dtype == DType::kBF16 && w.experts == 0 &&
         is_plain(w, DType::kBF16) && x.cols() % kWide == 0 && x.cols() <= kMostSteps * kStep &&
         features(w) <= int64_t{kMostRows} * multiprocessors_ &&
         rows_per_block(w) * x.cols() * 2 <= kMostBytes && is_aligned(x) &&
         is_aligned(w.weight.data);
}

void ResidentProducts::product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) const {
  SKIFF_CHECK(takes(x, w), "{} x {} by {} is no resident GEMV", x.rows(), x.cols(), features(w));
  const int rows = rows_per_block(w);
  const Resident r = {.out = out.data,
                      .out_f32 = out.dtype == DType::kF32,
                      .x = static_cast<const __nv_bfloat16*>(x.data),
                      .w = static_cast<const __nv_bfloat16*>(w.weight.data),
                      .bias = w.bias ? w.bias.as<float>() : nullptr,
                      .features = static_cast<int>(features(w)),
                      .in = static_cast<int>(x.cols()),
                      .rows_per_block = rows};
  const auto blocks = static_cast<unsigned>((r.features + rows - 1) / rows);
  const Launch how = {blocks, kThreads, static_cast<size_t>(rows) * x.cols() * 2, stream};
  bool started = false;
  for_each_kernel([&](auto kernel, int steps) {
    if (started || r.in > steps * kStep) return;
    launch(kernel, how, r);
    started = true;
  });
}

}  // namespace skiff::cuda
