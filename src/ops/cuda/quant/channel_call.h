// ops/cuda/quant/channel_call.h -- starts the kernels of channel_kernel.cuh.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/cuda/quant/channel_shape.h"
#include "ops/cuda/quant/round_rows.h"
#include "weights/linear.h"

namespace skiff::cuda::channels {

// Lets the kernels take the shared memory that they need.
void allow_channel_kernels();

// out[rows, out] = x * w^T + bias; gated: out[rows, width] = act(gate) * up, w [2 * width, in]
// with the gate first, without a bias.
struct ChannelCall {
  Tensor out;
  RoundedRows x;
  bool gated = false;
  Act act = Act::kSilu;
};
void start_channels(const ChannelCall& call, const Linear& w, const ChannelShape& shape,
                    cudaStream_t stream);

}  // namespace skiff::cuda::channels
