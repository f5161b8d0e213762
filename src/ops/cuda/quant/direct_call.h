// ops/cuda/quant/direct_call.h -- starts the products of direct_args.h.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/direct_args.h"
#include "weights/linear.h"

namespace skiff::cuda::direct {

// Lets the kernels take the shared memory that they need.
void allow_direct_kernels();

// Returns whether packed weight w is of a format that these kernels know, for so many rows at a
// time.
bool takes(const Linear& w, int64_t rows);
// Returns whether a block has room for so many rows of so many inputs.
bool fits(int64_t rows, int64_t in);

// Starts a product. `args` has everything but pitch, chunks, pairs and log_split.
void start_direct(const Linear& w, DirectArgs args, bool gated, int multiprocessors,
                  cudaStream_t stream);

}  // namespace skiff::cuda::direct
