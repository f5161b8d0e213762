// ops/cuda/linear/stream_kernels.h -- how stream.cu starts its kernels, which are compiled apart:
// the gated ones in stream_gated.cu, the others in stream_plain.cu.
#pragma once
#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/stream_args.cuh"

namespace skiff::cuda::streamed {

// Lets the kernels take the shared memory that they need.
template <bool kGated>
void allow_stream_kernels();

// Starts the kernel for jobs of up to `rows` rows, one of job_rows()'s or dense_job_rows()'s
// values, with maps of boxes of weights and of rows of x. Only 128 and 256 rows are summed in
// pieces (StreamArgs::cut).
template <bool kGated>
void start_stream(int rows, const Launch& how, const CUtensorMap& weights, const CUtensorMap& x,
                  const StreamArgs& args);

}  // namespace skiff::cuda::streamed
