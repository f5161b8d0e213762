// ops/cuda/linear/stream_call.h -- one call of StreamedProducts, for the files that carry it out.
#pragma once
#include <optional>

#include "ops/cuda/linear/stream.h"
#include "ops/cuda/linear/stream_args.cuh"

namespace skiff::cuda {

struct StreamedProducts::Call {
  Tensor out, x;
  const Linear& w;
  bool gated = false;
  Act act = Act::kSilu;
  JobList jobs;
  int job_rows = 0;
  bool whole = false;   // tiles are not cut by stream-K
  bool pieces = false;  // whole tiles are summed as if they were cut
  bool jobs_early = false;
  bool list_follows = false;       // the next kernel reads the list of jobs before its wait
  std::optional<MetRows> met;      // x as it meets w, if it is known already
  std::optional<MetRows> rounded;  // what the outputs become instead of `out`
};

// Tiles of a GEMM with so many output columns.
inline int tiles_of(int columns, bool gated) {
  const int tile = gated ? streamed::kTileRows / 2 : streamed::kTileRows;
  return (columns + tile - 1) / tile;
}

}  // namespace skiff::cuda
