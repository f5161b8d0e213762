// ops/cuda/quant/round_ahead.h -- operations that also round their output for the product behind
// them, as round_rows() would: the product then needs no kernel that reads the rows again.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/cuda/quant/round_rows.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Returns whether add_norm_rounding() takes the operands, which are those of add_norm().
bool rounds_norm(const Tensor& out, const Tensor& residual, const Tensor& delta, const Norm& norm);
// Does what add_norm() does, bit for bit, and gives the rounded rows of out, on scratch of
// rounded_rows_bytes().
RoundedRows add_norm_rounding(const Tensor& out, const Tensor& residual, const Tensor& delta,
                              const Norm& norm, const InputScratch& scratch, cudaStream_t stream);

// The same for gated_act().
bool rounds_gated(const Tensor& out, const Tensor& gate_up);
RoundedRows gated_act_rounding(const Tensor& out, const Tensor& gate_up, Act act,
                               const InputScratch& scratch, cudaStream_t stream);

}  // namespace skiff::cuda
