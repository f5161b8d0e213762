// ops/cuda/quant/atom_call.h -- what the kernels of packed weights must know of a weight.
#pragma once
#include "ops/cuda/quant/atom_kernels.h"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda::atoms {

inline int chunks_of(const Tensor& x) {
  return static_cast<int>((x.cols() + kAtomWidth - 1) / kAtomWidth);
}

// CHECKs that the weight's format has a packing.
AtomFormat format_of(const Linear& w);
AtomArgs args_of(const Linear& w);
// Returns the arguments of a product of the weight with rows that meet() has changed.
AtomArgs args_of(const Linear& w, const MetRows& rows, const JobList& jobs);
// Boxes of 128 bytes of `box_rows` rows of bf16 or e4m3.
CUtensorMap row_map(const Tensor& x, int box_rows);

}  // namespace skiff::cuda::atoms
