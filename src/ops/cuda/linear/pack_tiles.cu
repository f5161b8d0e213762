#include "ops/cuda/linear/pack_tiles.h"

#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/tiles.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 1024;
constexpr int kWide = 8;  // elements of a 16-byte chunk

__global__ void __launch_bounds__(kThreads)
    pack_kernel(uint4* to, const uint4* from, int64_t rows, int64_t in) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads, per_row = in / kWide;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * per_row; i += step)
    to[tile_index(i / per_row, i % per_row * kWide, rows) / kWide] = from[i];
}

}  // namespace

void pack_tiles(void* to, const Tensor& matrix, cudaStream_t stream) {
  SKIFF_CHECK(matrix.dtype == DType::kBF16 && matrix.contiguous());
  SKIFF_CHECK(fits_tiles(matrix.rows(), matrix.cols()), "{} x {} weights do not fit tiles",
              matrix.rows(), matrix.cols());
  if (matrix.elements() == 0) return;
  const int64_t chunks = matrix.elements() / kWide;
  const auto blocks = std::min<int64_t>((chunks + kThreads - 1) / kThreads, kMaxBlocks);
  launch(pack_kernel,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream},
         static_cast<uint4*>(to), static_cast<const uint4*>(matrix.data), matrix.rows(),
         matrix.cols());
}

}  // namespace skiff::cuda
