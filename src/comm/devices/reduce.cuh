// comm/devices/reduce.cuh -- what the kernels that add up rows over ranks share: access to rows,
// the sum of a column over ranks, and the choice of a kernel by type and alignment.
#pragma once
#include <algorithm>

#include "base/check.h"
#include "comm/devices/cluster_sum.cuh"
#include "comm/devices/exchange.cuh"
#include "ops/cuda/align.h"

namespace skiff::devices {

template <class T>
__device__ __forceinline__ T* row_of(const cuda::Matrix& m, int64_t row) {
  return static_cast<T*>(m.data) + row * m.stride;
}

template <class T, int N>
__device__ __forceinline__ Words<T, N> words_at(const T* from) {
  return *reinterpret_cast<const Words<T, N>*>(from);
}
template <class T, int N>
__device__ __forceinline__ void put(const cuda::Matrix& to, int64_t row, int c,
                                    const Words<T, N>& words) {
  *reinterpret_cast<Words<T, N>*>(row_of<T>(to, row) + c) = words;
}

// Columns of a slice: a multiple of N.
template <int N>
__host__ __device__ constexpr int slice_width(int cols) {
  return (cols + kSlices * N - 1) / (kSlices * N) * N;
}

// A slice of a row, as one of its threads sees it.
struct Slice {
  int index, thread, threads;  // the slice, and this thread among those of the slice
  int cols;                    // The row has so many columns.

  // One of the slices that a block shares, or the one that a block of a cluster has.
  __device__ static Slice of_block(int cols) {
    const int threads = static_cast<int>(blockDim.x) / kSlices, i = static_cast<int>(threadIdx.x);
    return {i / threads, i % threads, threads, cols};
  }
  __device__ static Slice of_cluster(int cols) {
    return {cuda::block_rank(), static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), cols};
  }

  // Calls f(column) for every N-th column that is this thread's.
  template <int N, class F>
  __device__ __forceinline__ void for_columns(F f) const {
    const int end = end_of<N>();
    for (int c = first<N>(); c < end; c += threads * N) f(c);
  }
  // Calls use(column, words) for the same columns with the words of load(column), of which those of
  // the first column are there already.
  template <int N, class W, class Load, class Use>
  __device__ __forceinline__ void for_loaded(W words, Load load, Use use) const {
    const int end = end_of<N>();
    for (int c = first<N>(); c < end;) {
      use(c, words);
      c += threads * N;
      if (c < end) words = load(c);
    }
  }
  // load(column) for the first column, if there is one.
  template <int N, class Load>
  __device__ __forceinline__ auto load_first(Load load) const {
    return first<N>() < end_of<N>() ? load(first<N>()) : decltype(load(0)){};
  }

 private:
  template <int N>
  __device__ __forceinline__ int first() const {
    return index * slice_width<N>(cols) + thread * N;
  }
  template <int N>
  __device__ __forceinline__ int end_of() const {
    return min(cols, (index + 1) * slice_width<N>(cols));
  }
};

// Adds N elements, each in f32.
template <class T, int N>
__device__ __forceinline__ void add_words(const Words<T, N>& words, float (&sum)[N]) {
  const auto& elements = reinterpret_cast<const T(&)[N]>(words);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += cuda::to_float(elements[i]);
}

// The sum of N elements over ranks, of which there are at most kMost, each addition in f32, from
// rank 0 on. `mine` are this rank's elements, and the others' lie at byte `at` of their slots.
template <class T, int N, int kMost>
__device__ __forceinline__ void sum_ranks(const Turn& turn, const Exchange& exchange, uint64_t at,
                                          const T* mine, float (&sum)[N]) {
  Words<T, N> words[kMost];
  const Words<T, N> own = sendable<T>(words_at<T, N>(mine));
  turn.receive_all<T>(at, exchange.size, words);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = 0;
#pragma unroll
  for (int from = 0; from < kMost; ++from) {
    if (from >= exchange.size) break;
    add_words<T, N>(from == exchange.rank ? own : words[from], sum);
  }
}

// N elements, rounded to T, as they can be sent.
template <class T, int N>
__device__ __forceinline__ Words<T, N> sendable_words(const float (&from)[N]) {
  cuda::Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = cuda::from_float<T>(from[i]);
  return sendable<T>(reinterpret_cast<const Words<T, N>&>(pack));
}

// A slice of row r of a ReduceAddNorm: adds to the residual what the ranks have of the row, and
// keeps the result, multiplied by the weight, in `kept`, which is in shared memory and indexed by
// column. sum_of(column, sum) gives the sum over ranks of N elements. Returns this thread's sum of
// squares.
template <int N, class Sum>
__device__ __forceinline__ float add_slice(const ReduceAddNorm& args, int r, const Slice& slice,
                                           float* kept, Sum sum_of) {
  float* x = row_of<float>(args.residual, r);
  float squares = 0;
  slice.for_columns<N>([&](int c) {
    float v[N], w[N], sum[N];
    cuda::load<N>(v, x + c);
    cuda::load<N>(w, args.weight + c);
    sum_of(c, sum);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[i] += sum[i];
      w[i] *= v[i];
      squares += v[i] * v[i];
    }
    cuda::store<N>(kept + c, w);
    cuda::store<N>(x + c, v);
  });
  return squares;
}

// The sum_of for row r where the other ranks have sent it to byte `at` of their slots.
template <class T, int N, int kMost>
struct SumOfSlots {
  const Turn& turn;
  const Exchange& exchange;
  const ReduceAddNorm& args;
  int r;
  uint64_t at;

  __device__ __forceinline__ void operator()(int c, float (&sum)[N]) const {
    sum_ranks<T, N, kMost>(turn, exchange, at + static_cast<uint64_t>(c) * sizeof(T),
                           row_of<const T>(args.delta, r) + c, sum);
  }
};

// Calls emit(column, words) for each N elements of the norm of a slice. `squares` is the sum of
// squares of the whole row.
template <class T, int N, class F>
__device__ __forceinline__ void norm_slice(const ReduceAddNorm& args, const Slice& slice,
                                           float squares, const float* kept, F emit) {
  const float scale = rsqrtf(squares / static_cast<float>(args.cols) + args.eps);
  slice.for_columns<N>([&](int c) {
    float v[N];
    cuda::load<N>(v, kept + c);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= scale;
    emit(c, sendable_words<T, N>(v));
  });
}

// Returns the sum over slices of each slice's sum over its threads. A slice has whole warps of the
// block.
__device__ inline float sum_slices(float x) {
  __shared__ float partial[kMaxWarps];
  x = cuda::warp_sum(x);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  return sum_warps(partial, static_cast<int>(blockDim.x) / 32 / kSlices);
}

// Row r by a whole block. `kept` has room for a row.
template <class T, int N, class Sum, class F>
__device__ __forceinline__ void add_and_norm(const ReduceAddNorm& args, int r, const Slice& slice,
                                             float* kept, Sum sum_of, F emit) {
  const float squares = add_slice<N>(args, r, slice, kept, sum_of);
  norm_slice<T, N>(args, slice, sum_slices(squares), kept, emit);
  __syncthreads();
}

// Calls f(T{}, N, kMost) for the type of a tensor, the elements of an access (16 bytes, or one
// element), and the least of the numbers of ranks that kernels are compiled for.
template <class F>
void with_access(cuda::Float type, bool wide, int ranks, F f) {
  SKIFF_CHECK(type != cuda::Float::kF16, "sums over ranks are of f32 or bf16");
  const auto most = [&](auto element, auto many) {
    if (ranks <= 2) return f(element, many, std::integral_constant<int, 2>());
    if (ranks <= 4) return f(element, many, std::integral_constant<int, 4>());
    f(element, many, std::integral_constant<int, kMaxDevices>());
  };
  const auto of = [&]<class T>(T element) {
    constexpr int kWide = 16 / sizeof(T);
    if (wide) return most(element, std::integral_constant<int, kWide>());
    most(element, std::integral_constant<int, 1>());
  };
  if (type == cuda::Float::kBF16) return of(__nv_bfloat16{});
  of(float{});
}

inline int64_t element_bytes(const cuda::Matrix& m) { return m.type == cuda::Float::kF32 ? 4 : 2; }

inline bool is_wide(const cuda::Matrix& m, int cols) {
  return cols % (16 / element_bytes(m)) == 0 &&
         cuda::is_aligned(m.data, m.stride * element_bytes(m), 16);
}

inline bool is_wide(const ReduceAddNorm& args) {
  return is_wide(args.delta, args.cols) && is_wide(args.out, args.cols) &&
         is_wide(args.residual, args.cols) && cuda::is_aligned(args.weight);
}

// A launch with a thread for each access to `slices` slices of a row; its grid is not set yet.
template <int N>
cuda::Launch launch_of(int cols, int slices, size_t shared, cudaStream_t stream) {
  const int items = slice_width<N>(cols) / N;
  const int threads = slices * std::min(kMaxSliceThreads, (items + 31) / 32 * 32);
  return {.block = dim3(static_cast<unsigned>(threads)), .shared = shared, .stream = stream};
}

}  // namespace skiff::devices
