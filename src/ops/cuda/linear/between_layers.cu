#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/between_layers.h"

namespace skiff::cuda {
namespace {

constexpr int kBlocks = 512, kThreads = 256;

__device__ unsigned read_all(const uint4* from, size_t pieces) {
  unsigned sum = 0;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < pieces;
       i += size_t{kBlocks} * kThreads) {
    const uint4 v = __ldcg(from + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* scratch, size_t pieces, const char* x, size_t row_pieces,
                int64_t row_bytes, int64_t rows, unsigned* never) {
  wait_for_previous();
  unsigned sum = read_all(scratch, pieces);
  for (int64_t r = 0; r < rows; ++r)
    sum += read_all(reinterpret_cast<const uint4*>(x + r * row_bytes), row_pieces);
  if (never) *never = sum;
}

}  // namespace

void as_between_layers(const void* scratch, size_t bytes_of_scratch, const Tensor& x,
                       cudaStream_t stream) {
  const size_t element = bytes(x.dtype);
  launch(read_kernel, Launch{.grid = kBlocks, .block = kThreads, .stream = stream},
         static_cast<const uint4*>(scratch), bytes_of_scratch / sizeof(uint4),
         static_cast<const char*>(x.data), static_cast<size_t>(x.cols()) * element / sizeof(uint4),
         x.row_stride * static_cast<int64_t>(element), x.rows(), static_cast<unsigned*>(nullptr));
}

}  // namespace skiff::cuda
