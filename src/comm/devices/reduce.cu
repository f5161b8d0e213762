#include <algorithm>

#include "base/check.h"
#include "comm/devices/exchange.cuh"
#include "ops/cuda/align.h"
#include "ops/cuda/block.cuh"

namespace skiff::devices {
namespace {

using cuda::Float;
using cuda::Matrix;

constexpr int kMaxThreads = 512;

template <class T>
__device__ __forceinline__ T* row_of(const Matrix& m, int64_t row) {
  return static_cast<T*>(m.data) + row * m.stride;
}

template <class T, int N>
__device__ __forceinline__ Words<T, N> words_at(const T* from) {
  return *reinterpret_cast<const Words<T, N>*>(from);
}

// Calls f(column) for every N-th column that is this thread's.
template <int N, class F>
__device__ __forceinline__ void for_columns(int cols, F f) {
  for (int c = static_cast<int>(threadIdx.x) * N; c < cols; c += static_cast<int>(blockDim.x) * N)
    f(c);
}

// Sends this block's rows of x [rows, cols] to all ranks.
template <class T, int N>
__device__ void send_rows(const Turn& turn, const Matrix& x, int rows, int cols) {
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x))
    for_columns<N>(cols, [&](int c) {
      turn.send_all((int64_t{r} * cols + c) * sizeof(T),
                    sendable<T>(words_at<T, N>(row_of<const T>(x, r) + c)));
    });
}

// The sum of N elements over ranks, each addition in f32, from rank 0 on.
template <class T, int N>
__device__ __forceinline__ void sum_ranks(const Turn& turn, const Exchange& exchange, uint64_t at,
                                          const T* mine, float (&sum)[N]) {
  Words<T, N> words[kMaxDevices];
  turn.receive_all<T>(at, words);
  const Words<T, N> own = sendable<T>(words_at<T, N>(mine));
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = 0;
#pragma unroll
  for (int from = 0; from < kMaxDevices; ++from) {
    if (from >= exchange.size) break;
    const Words<T, N> theirs = from == exchange.rank ? own : words[from];
    const auto& elements = reinterpret_cast<const T(&)[N]>(theirs);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += cuda::to_float(elements[i]);
  }
}

// A block keeps a row, multiplied by the weight, in shared memory while it computes the norm.
template <class T, int N>
__global__ __launch_bounds__(kMaxThreads) void reduce_add_norm_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ float row[];
  const int cols = args.cols;
  const Turn turn(exchange, static_cast<uint64_t>(args.rows) * cols * sizeof(T));
  send_rows<T, N>(turn, args.delta, args.rows, cols);
  turn.turn_over();
  for (int r = static_cast<int>(blockIdx.x); r < args.rows; r += static_cast<int>(gridDim.x)) {
    float* x = row_of<float>(args.residual, r);
    float squares = 0;
    for_columns<N>(cols, [&](int c) {
      float v[N], w[N], sum[N];
      cuda::load<N>(v, x + c);
      cuda::load<N>(w, args.weight + c);
      sum_ranks<T, N>(turn, exchange, (int64_t{r} * cols + c) * sizeof(T),
                      row_of<const T>(args.delta, r) + c, sum);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        v[i] += sum[i];
        row[c + i] = v[i] * w[i];
        squares += v[i] * v[i];
      }
      cuda::store<N>(x + c, v);
    });
    const float scale = rsqrtf(cuda::block_sum(squares) / static_cast<float>(cols) + args.eps);
    for_columns<N>(cols, [&](int c) {
      float v[N];
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = row[c + i] * scale;
      cuda::store<N>(row_of<T>(args.out, r) + c, v);
    });
    __syncthreads();
  }
}

template <class T, int N>
__global__ __launch_bounds__(kMaxThreads) void all_reduce_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ Matrix x, int rows,
    int cols) {
  const Turn turn(exchange, static_cast<uint64_t>(rows) * cols * sizeof(T));
  send_rows<T, N>(turn, x, rows, cols);
  turn.turn_over();
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x))
    for_columns<N>(cols, [&](int c) {
      float sum[N];
      T* mine = row_of<T>(x, r) + c;
      sum_ranks<T, N>(turn, exchange, (int64_t{r} * cols + c) * sizeof(T), mine, sum);
      cuda::store<N>(mine, sum);
    });
}

// Calls f(T{}, N) for the type of `delta` and the elements of an access: 16 bytes, or one element.
template <class F>
void with_access(Float type, bool wide, F f) {
  SKIFF_CHECK(type != Float::kF16, "sums over ranks are of f32 or bf16");
  const auto of = [&]<class T>(T) {
    constexpr int kWide = 16 / sizeof(T);
    if (wide) return f(T{}, std::integral_constant<int, kWide>());
    f(T{}, std::integral_constant<int, 1>());
  };
  if (type == Float::kBF16) return of(__nv_bfloat16{});
  of(float{});
}

bool is_wide(const Matrix& m) {
  const int64_t width = m.type == Float::kF32 ? 4 : 2;
  return cuda::is_aligned(m.data, m.stride * width, 16);
}

// Elements of 16 bytes.
int wide_elements(const Matrix& m) { return m.type == Float::kF32 ? 4 : 8; }

// Returns a launch whose grid is not set yet.
cuda::Launch launch_of(int items, size_t shared, cudaStream_t stream) {
  const int threads = std::min(kMaxThreads, (items + 31) / 32 * 32);
  return {.block = dim3(static_cast<unsigned>(threads)), .shared = shared, .stream = stream};
}

}  // namespace

void start_reduce_add_norm(const Exchange& exchange, const ReduceAddNorm& args,
                           cudaStream_t stream) {
  const int many = wide_elements(args.delta);
  const bool wide = args.cols % many == 0 && is_wide(args.out) && is_wide(args.residual) &&
                    is_wide(args.delta) && cuda::is_aligned(args.weight);
  const size_t shared = static_cast<size_t>(args.cols) * sizeof(float);
  cuda::Launch how = launch_of(wide ? args.cols / many : args.cols, shared, stream);
  with_access(args.delta.type, wide, [&]<class T, int N>(T, std::integral_constant<int, N>) {
    const auto kernel = reduce_add_norm_kernel<T, N>;
    if (shared > cuda::kSharedUnasked) cuda::allow_shared(kernel, shared);
    set_resident_blocks(how, kernel, args.rows);
    cuda::launch(kernel, how, exchange, args);
  });
}

void start_all_reduce(const Exchange& exchange, Matrix x, int rows, int cols, cudaStream_t stream) {
  const int many = wide_elements(x);
  const bool wide = cols % many == 0 && is_wide(x);
  cuda::Launch how = launch_of(wide ? cols / many : cols, 0, stream);
  with_access(x.type, wide, [&]<class T, int N>(T, std::integral_constant<int, N>) {
    const auto kernel = all_reduce_kernel<T, N>;
    set_resident_blocks(how, kernel, rows);
    cuda::launch(kernel, how, exchange, x, rows, cols);
  });
}

}  // namespace skiff::devices
