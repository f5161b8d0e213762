// ops/cuda/quant/float8_call.h -- how the streamed GEMM of weights in float8_rows.h is started.
#pragma once
#include <cuda.h>

#include "ops/cuda/quant/float8_args.cuh"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda::float8 {

struct Float8Kind {
  int rows = 0;  // rows of a job: 8, 16, 32, 64 or 128
  bool gated = false;
  int tiles = 1;  // weight tiles of a block, which StreamArgs::tiles counts as one; 2: of 128 rows
  bool rounds = false;  // outputs of gated pairs leave as codes
  bool operator==(const Float8Kind&) const = default;
};

struct Float8Launch {
  Float8Kind kind;
  unsigned blocks = 0;
  cudaStream_t stream = nullptr;
};

// Returns whether a gated GEMM takes the weight: a tile's rows of each half share a row of scales.
inline bool takes_gated(int64_t features) { return features % 256 == 0; }

// Boxes of `height` weight rows, or where gated of half as many and what they let through, by eight
// rows in turn. Elements of the map are pairs of weights, its dimensions [in, 8 rows, gate or up,
// groups of 8 rows, experts], or [in, out, 1, 1, experts].
CUtensorMap weight_map(const Linear& w, bool gated, int height);
// `met`: the rows of x, as meet() leaves them for w.
Float8Args args_of(const Linear& w, const MetRows& met);

// Lets the kernels take the shared memory that they need.
void allow_float8_kernels();
// `met`: the rows of x, as meet() leaves them for w. `out`: where Float8Kind::rounds, codes and
// scales of the outputs.
void start_float8(const Float8Launch& how, const streamed::StreamArgs& args, const MetRows& met,
                  const Linear& w, const MetRows& out);

}  // namespace skiff::cuda::float8
