#include "ops/cuda/linear/split_weights.h"

#include <cuda_bf16.h>

#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    split_kernel(__nv_bfloat16* parts, const float* w, int64_t count) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float rest = w[i];
#pragma unroll
  for (int p = 2; p >= 0; --p) {
    const __nv_bfloat16 part = __float2bfloat16_rn(rest);
    parts[p * count + i] = part;
    rest -= __bfloat162float(part);
  }
}

struct AddParts {
  float* out;
  const float *sums, *bias;
  int64_t out_stride;
  int features;
};

// A block has a row.
__global__ void __launch_bounds__(kThreads) add_parts_kernel(AddParts a) {
  let_next_start();
  wait_for_previous();
  const float* sums = a.sums + int64_t{blockIdx.x} * 3 * a.features;
  for (int o = threadIdx.x; o < a.features; o += kThreads)
    a.out[blockIdx.x * a.out_stride + o] =
        sums[o] + sums[a.features + o] + sums[2 * a.features + o] + (a.bias ? a.bias[o] : 0.0f);
}

}  // namespace

void split_weights(Tensor parts, const Tensor& w, cudaStream_t stream) {
  const int64_t count = w.elements();
  SKIFF_CHECK(w.contiguous() && parts.contiguous() && parts.elements() == 3 * count);
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  launch(split_kernel, {blocks, kThreads, 0, stream}, static_cast<__nv_bfloat16*>(parts.data),
         w.as<float>(), count);
}

void add_parts(Tensor out, const Tensor& sums, const Tensor& bias, cudaStream_t stream) {
  SKIFF_CHECK(sums.contiguous() && sums.cols() == 3 * out.cols() && sums.rows() == out.rows());
  const AddParts a = {.out = out.as<float>(),
                      .sums = sums.as<float>(),
                      .bias = bias ? bias.as<float>() : nullptr,
                      .out_stride = out.row_stride,
                      .features = static_cast<int>(out.cols())};
  launch(add_parts_kernel, {static_cast<unsigned>(out.rows()), kThreads, 0, stream}, a);
}

}  // namespace skiff::cuda
