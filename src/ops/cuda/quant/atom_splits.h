// ops/cuda/quant/atom_splits.h -- how the kernels of atom_split.cuh are started. They are compiled
// apart, one file for each kind of elements.
#pragma once
#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/split_shape.h"

namespace skiff::cuda::atoms {

struct SplitKind {
  int rows = 0;  // rows of a job: 32, 64 or 128
  bool gated = false;
  int tiles = 1;  // neighbouring tiles that a block multiplies at a time: 1 or 2
  bool operator==(const SplitKind&) const = default;
};

struct SplitLaunch {
  SplitKind kind;
  int splits = 1;       // blocks of a cluster
  unsigned blocks = 0;  // a multiple of `splits`
  cudaStream_t stream = nullptr;
};

template <Codes kCodes>
void allow_split_kernels();
template <Codes kCodes>
void start_split_of(const SplitLaunch& how, const CUtensorMap& x, const streamed::StreamArgs& args,
                    const AtomArgs& atoms);

// Asks the device; the kernels must have been allowed.
ClusterPlaces cluster_places();

}  // namespace skiff::cuda::atoms
