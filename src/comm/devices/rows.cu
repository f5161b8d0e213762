// Rows of several ranks together, and the sums of what was made of them back to their owners, where
// they are few: each element goes to a place of its own in a slot, and whoever needs it polls it.
#include "comm/devices/headers.cuh"

namespace skiff::devices {
namespace {

using cuda::Matrix;

constexpr int kThreads = 256;

// The groups of N elements of some rows, of which each thread of the grid has every step-th.
template <int N>
struct Elements {
  int groups;  // A row has so many.
  int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int step = static_cast<int>(gridDim.x * blockDim.x);

  // Calls f(row, column, index) for group `i`, if `rows` rows have one.
  template <class F>
  __device__ __forceinline__ void at(int i, int rows, F f) const {
    if (i < rows * groups) f(i / groups, i % groups * N, i);
  }
  // Calls receive(row, column, index) for this thread's groups of `receives` rows, and before each
  // send(row, column, index) for the one behind it, of `sends` rows: a link is busy while others
  // are waited for. The first of these was sent before.
  template <class Send, class Receive>
  __device__ __forceinline__ void exchange(int sends, Send send, int receives,
                                           Receive receive) const {
    const int end = max(sends, receives) * groups;
    for (int i = first; i < end; i += step) {
      at(i + step, sends, send);
      at(i, receives, receive);
    }
  }
};

template <class T, int N>
__device__ __forceinline__ uint64_t place(int index) {
  return kRowsHeader + uint64_t{static_cast<unsigned>(index)} * N * sizeof(T);
}

template <class T, int N, int kMost>
__global__ __launch_bounds__(kThreads) void dispatch_rows_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ DispatchRows args) {
  __shared__ int starts[kMaxDevices + 1];
  const int cols = args.cols, rank = exchange.rank;
  const Turn turn(exchange,
                  kRowsHeader + uint64_t{static_cast<unsigned>(args.most)} * cols * sizeof(T));
  const int live = args.live ? min(*args.live, args.rows) : args.rows;
  const Elements<N> elements = {cols / N};
  const auto send = [&](int r, int c, int i) {
    turn.send_all(place<T, N>(i), sendable<T>(words_at<T, N>(row_of<const T>(args.x, r) + c)));
  };
  send_header(turn, exchange, static_cast<uint32_t>(live));
  elements.at(elements.first, live, send);
  turn.turn_over();
  find_starts(turn, exchange, live, args.out_rows, starts);
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) <= exchange.size)
    args.starts[threadIdx.x] = starts[threadIdx.x];
  int rows[kMost], most = 0;
#pragma unroll
  for (int from = 0; from < kMost; ++from) {
    rows[from] = from < exchange.size ? starts[from + 1] - starts[from] : 0;
    most = max(most, rows[from]);
  }
  elements.exchange(live, send, most, [&](int r, int c, int i) {
    Words<T, N> words[kMost];
#pragma unroll
    for (int from = 0; from < kMost; ++from)
      if (r < rows[from]) {
        if (from == rank)
          words[from] = sendable<T>(words_at<T, N>(row_of<const T>(args.x, r) + c));
        else
          turn.peek(from, place<T, N>(i), words[from]);
      }
#pragma unroll
    for (int from = 0; from < kMost; ++from)
      if (r < rows[from]) {
        if (from != rank) turn.await_from<T>(from, place<T, N>(i), words[from]);
        put<T, N>(args.out, starts[from] + r, c, words[from]);
      }
  });
}

template <class T, int N, int kMost>
__global__ __launch_bounds__(kThreads) void combine_rows_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ CombineRows args) {
  const int cols = args.cols, rank = exchange.rank;
  const Turn turn(exchange,
                  kRowsHeader + uint64_t{static_cast<unsigned>(args.most)} * cols * sizeof(T));
  const Elements<N> elements = {cols / N};
  send_header(turn, exchange, 0);
  int starts[kMost], rows[kMost], most = 0;
#pragma unroll
  for (int owner = 0; owner < kMost; ++owner) {
    const bool is = owner < exchange.size;
    starts[owner] = is ? args.starts[owner] : 0;
    rows[owner] = is ? args.starts[owner + 1] - starts[owner] : 0;
    if (owner != rank) most = max(most, rows[owner]);
  }
  const auto send = [&](int r, int c, int i) {
#pragma unroll
    for (int owner = 0; owner < kMost; ++owner)
      if (owner != rank && r < rows[owner])
        turn.send_to(
            owner, place<T, N>(i),
            sendable<T>(words_at<T, N>(row_of<const T>(args.parts, starts[owner] + r) + c)));
  };
  elements.at(elements.first, most, send);
  turn.turn_over();
  const int first = args.starts[rank], mine = args.starts[rank + 1] - first;
  elements.exchange(most, send, args.rows, [&](int r, int c, int i) {
    float sum[N] = {};
    if (r < mine)
      sum_ranks<T, N, kMost>(turn, exchange, place<T, N>(i),
                             row_of<const T>(args.parts, first + r) + c, sum);
    cuda::store<N>(row_of<T>(args.out, r) + c, sum);
  });
  const auto thread = static_cast<int>(threadIdx.x);
  uint32_t header = 0;
  if (blockIdx.x == 0 && is_for(exchange, thread)) await_header(turn, thread, header);
}

// Starts kernel<T, N, kMost> with a thread for each access to the rows of a rank.
template <class Args, class F>
void start_rows(const Exchange& exchange, const Args& args, const Matrix& a, const Matrix& b,
                cudaStream_t stream, F kernel_of) {
  SKIFF_CHECK(static_cast<size_t>(args.most * args.cols * element_bytes(a)) <= kRowsBytes,
              "{} rows of {} columns do not fit a slot", args.most, args.cols);
  const auto start = [&]<class T, int N, int kMost>(T element, std::integral_constant<int, N> width,
                                                    std::integral_constant<int, kMost> many) {
    const auto kernel = kernel_of(element, width, many);
    const int64_t items = int64_t{args.most} * (args.cols / N);
    cuda::Launch how{.block = dim3(kThreads), .stream = stream};
    set_resident_blocks(how, kernel, std::max<int64_t>(1, (items + kThreads - 1) / kThreads),
                        exchange);
    cuda::launch(kernel, how, exchange, args);
  };
  with_access(a.type, is_wide(a, args.cols) && is_wide(b, args.cols), exchange.size, start);
}

}  // namespace

void start_dispatch_rows(const Exchange& exchange, const DispatchRows& args, cudaStream_t stream) {
  start_rows(exchange, args, args.x, args.out, stream,
             []<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                           std::integral_constant<int, kMost>) {
               return dispatch_rows_kernel<T, N, kMost>;
             });
}

void start_combine_rows(const Exchange& exchange, const CombineRows& args, cudaStream_t stream) {
  start_rows(exchange, args, args.parts, args.out, stream,
             []<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                           std::integral_constant<int, kMost>) {
               return combine_rows_kernel<T, N, kMost>;
             });
}

}  // namespace skiff::devices
