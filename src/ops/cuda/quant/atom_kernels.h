// ops/cuda/quant/atom_kernels.h -- how the kernels of atom_kernel.cuh are started. They are
// compiled apart, one file for each kind of elements.
#pragma once
#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/atom_args.cuh"

namespace skiff::cuda::atoms {

struct AtomKind {
  int rows = 0;  // rows of a job: 8, 16, 24, 32, 64 or 128
  bool gated = false;
  int blocks = 1;      // A multiprocessor runs so many, at most most_blocks().
  bool zeros = false;  // atoms have zero points: elements of four bits only
  int tiles = 1;  // neighbouring tiles that a block multiplies at a time: 1, or 2 of takes_pairs()
  bool operator==(const AtomKind&) const = default;
};

struct AtomLaunch {
  AtomKind kind;
  unsigned multiprocessors = 0;
  cudaStream_t stream = nullptr;
};

// Lets the kernels take the shared memory that they need.
template <Codes kCodes, int kGroups>
void allow_atom_kernels();

// Starts the kernel for weights of `kGroups` groups a chunk, with a map of boxes of rows of x.
template <Codes kCodes, int kGroups>
void start_atoms_of(const AtomLaunch& how, const CUtensorMap& x, const streamed::StreamArgs& args,
                    const AtomArgs& atoms);

// Let the kernels of all formats that atom_format() gives take their shared memory, and start the
// kernel of one such format.
void allow_all_atom_kernels();
void start_atoms(const AtomFormat& format, const AtomLaunch& how, const CUtensorMap& x,
                 const streamed::StreamArgs& args, const AtomArgs& atoms);

}  // namespace skiff::cuda::atoms
