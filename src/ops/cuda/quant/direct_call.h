// ops/cuda/quant/direct_call.h -- starts the products of direct_args.h.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda::direct {

// Lets the kernels take the shared memory that they need.
void allow_direct_kernels();

// Returns whether quantized weight w is of a format that these kernels know, for so many rows at a
// time.
bool takes(const Linear& w, int64_t rows);
// Returns whether a block has room for so many rows of so many inputs.
bool fits(int64_t rows, int64_t in);
// Returns whether rows of x are rounded to e4m3 by the kernel itself.
bool rounds(const Linear& w, int64_t rows);

// Starts a product. `args` has everything but pitch, chunks, pairs and log_split. `met`: rows of x
// that have been rounded, with their scales (for float8_channels.h one of each row, as
// chunk_scales); else empty. `beside`: blocks had better fit beside those of other products; the
// bits are the same.
void start_direct(const Linear& w, DirectArgs args, bool gated, const MetRows& met,
                  int multiprocessors, cudaStream_t stream, bool beside = false);

}  // namespace skiff::cuda::direct
