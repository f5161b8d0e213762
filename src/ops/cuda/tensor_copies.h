// ops/cuda/tensor_copies.h -- copies between tensors of one dtype, in host memory or on the device.
#pragma once
#include "ops/cuda/deliver.h"
#include "tensor/tensor.h"

namespace skiff::cuda {

// Describes the copy of rows to rows of the same size, whose bytes are a multiple of 4.
SmallCopy small_copy(const Tensor& to, const Tensor& from);

// Starts a copy without conversion. What is small and goes to page-locked memory is written there
// by a kernel, other copies are the driver's.
void copy_plain(const Tensor& out, const Tensor& x, cudaStream_t stream);

}  // namespace skiff::cuda
