#include "comm/devices/exchange.cuh"
#include "ops/cuda/align.h"

namespace skiff::devices {
namespace {

using cuda::Matrix;

constexpr int kThreads = 256;

template <int N>
__device__ __forceinline__ Words<float, N>& words_of(const Matrix& m, int64_t row, int64_t col) {
  return *reinterpret_cast<Words<float, N>*>(static_cast<float*>(m.data) + row * m.stride + col);
}

// Calls f(row, column, index) for every group of N elements of x that is this thread's.
template <int N, class F>
__device__ __forceinline__ void for_elements(int rows, int cols, F f) {
  const int64_t groups = cols / N, all = groups * rows;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all; i += step)
    f(i / groups, i % groups * N, i);
}

template <int N>
__global__ __launch_bounds__(kThreads) void all_gather_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ Matrix out,
    const __grid_constant__ Matrix x, int rows, int cols) {
  const Turn turn(exchange, static_cast<uint64_t>(rows) * cols * sizeof(float));
  const int64_t place = int64_t{exchange.rank} * cols;
  for_elements<N>(rows, cols, [&](int64_t r, int64_t c, int64_t i) {
    const auto mine = sendable<float>(words_of<N>(x, r, c));
    turn.send_all(i * N * sizeof(float), mine);
    words_of<N>(out, r, place + c) = mine;
  });
  turn.turn_over();
  for_elements<N>(rows, cols, [&](int64_t r, int64_t c, int64_t i) {
    Words<float, N> words[kMaxDevices];
    turn.receive_all<float>(i * N * sizeof(float), exchange.size, words);
#pragma unroll
    for (int from = 0; from < kMaxDevices; ++from)
      if (from < exchange.size && from != exchange.rank)
        words_of<N>(out, r, int64_t{from} * cols + c) = words[from];
  });
}

bool is_wide(const Matrix& m) { return cuda::is_aligned(m.data, m.stride * 4, 16); }

}  // namespace

void start_all_gather(const Exchange& exchange, Matrix out, Matrix x, int rows, int cols,
                      cudaStream_t stream) {
  constexpr int kWide = 4;
  const bool wide = cols % kWide == 0 && is_wide(out) && is_wide(x);
  const int64_t items = int64_t{rows} * (wide ? cols / kWide : cols);
  const auto kernel = wide ? all_gather_kernel<kWide> : all_gather_kernel<1>;
  cuda::Launch how{.block = dim3(kThreads), .stream = stream};
  set_resident_blocks(how, kernel, (items + kThreads - 1) / kThreads, exchange);
  cuda::launch(kernel, how, exchange, out, x, rows, cols);
}

}  // namespace skiff::devices
