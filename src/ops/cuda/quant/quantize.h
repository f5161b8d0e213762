// ops/cuda/quant/quantize.h -- Ops::quantize on the device.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"
#include "weights/quant_rule.h"

namespace skiff::cuda {

// Fills elements and scales of `q` from `plain` as weights/quant_rule.h says. Everything lies on
// the device, rows one after the other.
void quantize(const Linear& q, const Tensor& plain, QuantRule rule, cudaStream_t stream);

}  // namespace skiff::cuda
