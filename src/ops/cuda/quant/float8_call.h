// ops/cuda/quant/float8_call.h -- how the streamed GEMM of weights in float8_rows.h is started.
#pragma once
#include "ops/cuda/linear/stream_args.cuh"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda::float8 {

struct Float8Kind {
  int rows = 0;  // rows of a job: 8, 16, 32, 64 or 128
  bool gated = false;
  int tiles = 1;  // weight tiles of a block, which StreamArgs::tiles counts as one; 2: of 128 rows
  bool operator==(const Float8Kind&) const = default;
};

struct Float8Launch {
  Float8Kind kind;
  unsigned blocks = 0;
  cudaStream_t stream = nullptr;
};

// Returns whether a gated GEMM takes the weight: a tile's rows of each half share a row of scales.
inline bool takes_gated(int64_t features) { return features % 256 == 0; }

// Lets the kernels take the shared memory that they need.
void allow_float8_kernels();
// `met`: the rows of x, as meet() leaves them for w.
void start_float8(const Float8Launch& how, const streamed::StreamArgs& args, const MetRows& met,
                  const Linear& w);

}  // namespace skiff::cuda::float8
