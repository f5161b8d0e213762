// ops/cuda/quant/direct_float8.h -- starts the kernels of direct_float8.cuh.
#pragma once
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda::direct {

void allow_float8_direct_kernels();
// `how`, but for room to align the rings.
void start_float8_direct(const Linear& w, const DirectArgs& args, bool gated, const MetRows& met,
                         Launch how);

}  // namespace skiff::cuda::direct
