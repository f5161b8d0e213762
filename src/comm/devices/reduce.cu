#include "comm/devices/reduce.cuh"

namespace skiff::devices {
namespace {

using cuda::Matrix;

constexpr int kBlockThreads = kSlices * kMaxSliceThreads;

// What this thread sends first of a slice of row r of x [rows, cols].
template <class T, int N>
__device__ __forceinline__ Words<T, N> first_words(const Matrix& x, int r, const Slice& slice) {
  return slice.load_first<N>([&](int c) { return words_at<T, N>(row_of<const T>(x, r) + c); });
}

// Sends the slice to all ranks.
template <class T, int N>
__device__ __forceinline__ void send_slice(const Turn& turn, const Matrix& x, int r,
                                           const Slice& slice, const Words<T, N>& first) {
  slice.for_loaded<N>(
      first, [&](int c) { return words_at<T, N>(row_of<const T>(x, r) + c); },
      [&](int c, const Words<T, N>& words) {
        turn.send_all((int64_t{r} * slice.cols + c) * sizeof(T), sendable<T>(words));
      });
}
template <class T, int N>
__device__ __forceinline__ void send_slice(const Turn& turn, const Matrix& x, int r,
                                           const Slice& slice) {
  send_slice<T, N>(turn, x, r, slice, first_words<T, N>(x, r, slice));
}

// Calls f(row) for the rows of this block.
template <class F>
__device__ __forceinline__ void for_rows(int rows, F f) {
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) f(r);
}

template <class T, int N, int kMost>
__global__ __launch_bounds__(kBlockThreads) void reduce_add_norm_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ __align__(16) float kept[];
  const int cols = args.cols;
  const Slice slice = Slice::of_block(cols);
  const Turn turn(exchange, static_cast<uint64_t>(args.rows) * cols * sizeof(T));
  for_rows(args.rows, [&](int r) { send_slice<T, N>(turn, args.delta, r, slice); });
  turn.turn_over();
  for_rows(args.rows, [&](int r) {
    const SumOfSlots<T, N, kMost> sum{turn, exchange, args, r, int64_t{r} * cols * sizeof(T)};
    add_and_norm<T, N>(args, r, slice, kept, sum,
                       [&](int c, const Words<T, N>& words) { put<T, N>(args.out, r, c, words); });
  });
}

// A cluster has a row, each of its blocks a slice: few rows are so by more multiprocessors.
template <class T, int N, int kMost>
__global__ __launch_bounds__(kMaxSliceThreads) void reduce_add_norm_clusters_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ __align__(16) float kept[];
  const int cols = args.cols, r = static_cast<int>(blockIdx.x) / kSlices;
  ClusterSum sum_cluster;
  const Slice slice = Slice::of_cluster(cols);
  Words<T, N> first;
  const Turn turn(exchange, static_cast<uint64_t>(args.rows) * cols * sizeof(T),
                  [&] { first = first_words<T, N>(args.delta, r, slice); });
  send_slice<T, N>(turn, args.delta, r, slice, first);
  turn.turn_over();
  sum_cluster.begin();
  float* by_column = kept - slice.index * slice_width<N>(cols);
  const SumOfSlots<T, N, kMost> sum{turn, exchange, args, r, int64_t{r} * cols * sizeof(T)};
  const float squares = add_slice<N>(args, r, slice, by_column, sum);
  norm_slice<T, N>(args, slice, sum_cluster(squares), by_column,
                   [&](int c, const Words<T, N>& words) { put<T, N>(args.out, r, c, words); });
}

template <class T, int N, int kMost>
__global__ __launch_bounds__(kBlockThreads) void all_reduce_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ Matrix x, int rows,
    int cols) {
  const Slice slice = Slice::of_block(cols);
  const Turn turn(exchange, static_cast<uint64_t>(rows) * cols * sizeof(T));
  for_rows(rows, [&](int r) { send_slice<T, N>(turn, x, r, slice); });
  turn.turn_over();
  for_rows(rows, [&](int r) {
    slice.for_columns<N>([&](int c) {
      float sum[N];
      T* mine = row_of<T>(x, r) + c;
      sum_ranks<T, N, kMost>(turn, exchange, (int64_t{r} * cols + c) * sizeof(T), mine, sum);
      cuda::store<N>(mine, sum);
    });
  });
}

}  // namespace

void start_reduce_add_norm(const Exchange& exchange, const ReduceAddNorm& args,
                           cudaStream_t stream) {
  // Any device that has clusters can have so many of them resident.
  constexpr int kClusters = 32;
  const bool clusters =
      cuda::kernels_overlap() && args.rows <= kClusters && !exchange.shares_device;
  const auto start = [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                                    std::integral_constant<int, kMost>) {
    const int columns = clusters ? slice_width<N>(args.cols) : args.cols;
    const size_t shared = static_cast<size_t>(columns) * sizeof(float);
    const auto kernel = clusters ? reduce_add_norm_clusters_kernel<T, N, kMost>
                                 : reduce_add_norm_kernel<T, N, kMost>;
    cuda::Launch how = launch_of<N>(args.cols, clusters ? 1 : kSlices, shared, stream);
    if (shared > cuda::kSharedUnasked) cuda::allow_shared(kernel, shared);
    if (clusters) {
      how.grid = dim3(static_cast<unsigned>(args.rows) * kSlices);
      how.cluster = kSlices;
    } else {
      set_resident_blocks(how, kernel, args.rows, exchange);
    }
    cuda::launch(kernel, how, exchange, args);
  };
  with_access(args.delta.type, is_wide(args), exchange.size, start);
}

void start_all_reduce(const Exchange& exchange, Matrix x, int rows, int cols, cudaStream_t stream) {
  const auto start = [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                                    std::integral_constant<int, kMost>) {
    const auto kernel = all_reduce_kernel<T, N, kMost>;
    cuda::Launch how = launch_of<N>(cols, kSlices, 0, stream);
    set_resident_blocks(how, kernel, rows, exchange);
    cuda::launch(kernel, how, exchange, x, rows, cols);
  };
  with_access(x.type, is_wide(x, cols), exchange.size, start);
}

}  // namespace skiff::devices
