// ops/cuda/moe/met_copies.h -- rows of activations that become e4m3 before they are copied for
// their experts, instead of each copy afterwards: an eighth of the work with eight experts a token,
// and half the bytes to copy.
#pragma once
#include "ops/cuda/moe/permute.h"
#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/inputs.h"

namespace skiff::cuda {

// Returns whether meet_copies() takes the operands, and is faster: what a row becomes does not
// depend on its expert, rows are many, and scratch has room.
bool meets_before_copies(const InputScratch& scratch, const Tensor& x, const Linear& w,
                         int64_t copies);

// permute(), and the copies as meet() makes them for the stack w, bit for bit. The codes lie where
// `to.gathered`, bf16 [copies, columns], begins; scratch has the scales.
MetRows meet_copies(const InputScratch& scratch, const Permutation& to, const Tensor& x,
                    const Linear& w, const Routing& routing, cudaStream_t stream);

}  // namespace skiff::cuda
