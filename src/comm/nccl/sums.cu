#include "comm/nccl/sums.h"

#include "comm/devices/reduce.cuh"

namespace skiff::nccl {
namespace {

using cuda::Matrix;
using devices::kMaxSliceThreads;
using devices::kSlices;
using devices::ReduceAddNorm;
using devices::Slice;
using devices::Words;

// The sum over ranks of N elements of one row, each addition in f32, from rank 0 on.
template <class T, int N>
struct SumOfRow {
  const Gathered& gathered;
  const T* mine;
  int64_t at;  // where the row begins, in bytes behind a rank's first

  __device__ __forceinline__ void operator()(int c, float (&sum)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = 0;
#pragma unroll 4
    for (int from = 0; from < gathered.size; ++from) {
      const auto* theirs = reinterpret_cast<const T*>(gathered.data + from * gathered.stride + at);
      const auto words = devices::sendable<T>(
          devices::words_at<T, N>((from == gathered.rank ? mine : theirs) + c));
      const auto& elements = reinterpret_cast<const T(&)[N]>(words);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += cuda::to_float(elements[i]);
    }
  }
};

template <class T, int N>
__device__ __forceinline__ SumOfRow<T, N> sum_of_row(const Gathered& gathered, const Matrix& own,
                                                     int r, int cols) {
  return {gathered, devices::row_of<const T>(own, r), int64_t{r} * cols * int64_t{sizeof(T)}};
}

// A block has a row.
template <class T, int N>
__global__ __launch_bounds__(kSlices* kMaxSliceThreads) void reduce_add_norm_kernel(
    const __grid_constant__ Gathered gathered, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ __align__(16) float kept[];
  const auto r = static_cast<int>(blockIdx.x);
  cuda::wait_for_previous();
  cuda::let_next_start();
  devices::add_and_norm<T, N>(
      args, r, Slice::of_block(args.cols), kept,
      sum_of_row<T, N>(gathered, args.delta, r, args.cols),
      [&](int c, const Words<T, N>& words) { devices::put<T, N>(args.out, r, c, words); });
}

// A cluster has a row, each of its blocks a slice: few rows are so by more multiprocessors.
template <class T, int N>
__global__ __launch_bounds__(kMaxSliceThreads) void reduce_add_norm_clusters_kernel(
    const __grid_constant__ Gathered gathered, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ __align__(16) float kept[];
  const int r = static_cast<int>(blockIdx.x) / kSlices;
  devices::ClusterSum sum_cluster;
  const Slice slice = Slice::of_cluster(args.cols);
  cuda::wait_for_previous();
  cuda::let_next_start();
  float* by_column = kept - slice.index * devices::slice_width<N>(args.cols);
  const float squares = devices::add_slice<N>(args, r, slice, by_column,
                                              sum_of_row<T, N>(gathered, args.delta, r, args.cols));
  sum_cluster.begin();
  devices::norm_slice<T, N>(
      args, slice, sum_cluster(squares), by_column,
      [&](int c, const Words<T, N>& words) { devices::put<T, N>(args.out, r, c, words); });
}

template <class T, int N>
__global__ __launch_bounds__(kSlices* kMaxSliceThreads) void all_reduce_kernel(
    const __grid_constant__ Gathered gathered, const __grid_constant__ Matrix x, int cols) {
  const auto r = static_cast<int>(blockIdx.x);
  cuda::wait_for_previous();
  cuda::let_next_start();
  const auto sum_of = sum_of_row<T, N>(gathered, x, r, cols);
  Slice::of_block(cols).for_columns<N>([&](int c) {
    float sum[N];
    sum_of(c, sum);
    cuda::store<N>(devices::row_of<T>(x, r) + c, sum);
  });
}

constexpr int kThreads = 256;

__device__ __forceinline__ float& element(const Matrix& m, int64_t row, int64_t col) {
  return static_cast<float*>(m.data)[row * m.stride + col];
}

template <class F>
__device__ __forceinline__ void for_elements(int64_t count, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) f(i);
}

__global__ __launch_bounds__(kThreads) void packing_kernel(float* to,
                                                           const __grid_constant__ Matrix x,
                                                           int rows, int cols) {
  cuda::wait_for_previous();
  cuda::let_next_start();
  for_elements(int64_t{rows} * cols, [&](int64_t i) {
    to[i] =
        __uint_as_float(devices::sendable<float>(__float_as_uint(element(x, i / cols, i % cols))));
  });
}

// Elements of `gathered` are [size][rows][cols].
__global__ __launch_bounds__(kThreads) void spreading_kernel(const __grid_constant__ Matrix out,
                                                             const float* gathered, int rows,
                                                             int cols, int size) {
  cuda::wait_for_previous();
  cuda::let_next_start();
  for_elements(int64_t{size} * rows * cols, [&](int64_t i) {
    const int64_t row = i / cols, from = row / rows;
    element(out, row % rows, from * cols + i % cols) = gathered[i];
  });
}

cuda::Launch launch_over(int64_t elements, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = std::min(kMostBlocks, (elements + kThreads - 1) / kThreads);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream};
}

}  // namespace

void start_reduce_add_norm(const Gathered& gathered, const ReduceAddNorm& args,
                           cudaStream_t stream) {
  constexpr int kClusters = 32;  // rows; more of them fill a device with a block each
  const bool clusters = cuda::kernels_overlap() && args.rows <= kClusters;
  const auto start = [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                                    std::integral_constant<int, kMost>) {
    const int columns = clusters ? devices::slice_width<N>(args.cols) : args.cols;
    const size_t shared = static_cast<size_t>(columns) * sizeof(float);
    const auto kernel =
        clusters ? reduce_add_norm_clusters_kernel<T, N> : reduce_add_norm_kernel<T, N>;
    cuda::Launch how = devices::launch_of<N>(args.cols, clusters ? 1 : kSlices, shared, stream);
    if (shared > cuda::kSharedUnasked) cuda::allow_shared(kernel, shared);
    how.grid = dim3(static_cast<unsigned>(args.rows) * (clusters ? kSlices : 1));
    if (clusters) how.cluster = kSlices;
    cuda::launch(kernel, how, gathered, args);
  };
  devices::with_access(args.delta.type, devices::is_wide(args), gathered.size, start);
}

void start_all_reduce(const Gathered& gathered, Matrix x, int rows, int cols, cudaStream_t stream) {
  const auto start = [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                                    std::integral_constant<int, kMost>) {
    cuda::Launch how = devices::launch_of<N>(cols, kSlices, 0, stream);
    how.grid = dim3(static_cast<unsigned>(rows));
    cuda::launch(all_reduce_kernel<T, N>, how, gathered, x, cols);
  };
  devices::with_access(x.type, devices::is_wide(x, cols), gathered.size, start);
}

void start_packing(float* to, Matrix x, int rows, int cols, cudaStream_t stream) {
  cuda::launch(packing_kernel, launch_over(int64_t{rows} * cols, stream), to, x, rows, cols);
}

void start_spreading(Matrix out, const float* gathered, int rows, int cols, int size,
                     cudaStream_t stream) {
  cuda::launch(spreading_kernel, launch_over(int64_t{size} * rows * cols, stream), out, gathered,
               rows, cols, size);
}

}  // namespace skiff::nccl
