#include "ops/cuda/linear/add_bias.h"

#include <cuda_bf16.h>

#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(T* out, int64_t out_stride, const float* sums, int64_t sums_stride,
                    const float* bias, int cols) {
  wait_for_previous();
  let_next_start();
  const int64_t r = blockIdx.x;
  for (int c = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); c < cols;
       c += static_cast<int>(gridDim.y) * kThreads)
    out[r * out_stride + c] = static_cast<T>(sums[r * sums_stride + c] + bias[c]);
}

}  // namespace

void add_bias(Tensor out, Tensor sums, Tensor bias, cudaStream_t stream) {
  if (out.rows() == 0) return;
  const int cols = static_cast<int>(out.cols());
  const Launch how = {{static_cast<unsigned>(out.rows()),
                       static_cast<unsigned>((cols + 4 * kThreads - 1) / (4 * kThreads))},
                      kThreads, 0, stream};
  if (out.dtype == DType::kF32)
    launch(add_bias_kernel<float>, how, out.as<float>(), out.row_stride, sums.as<float>(),
           sums.row_stride, bias.as<float>(), cols);
  else
    launch(add_bias_kernel<__nv_bfloat16>, how, static_cast<__nv_bfloat16*>(out.data),
           out.row_stride, sums.as<float>(), sums.row_stride, bias.as<float>(), cols);
}

}  // namespace skiff::cuda
