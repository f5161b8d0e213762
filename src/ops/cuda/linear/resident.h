// ops/cuda/linear/resident.h -- GEMVs whose whole weight fits the device's shared memory.
//
// For one row of x and a weight of some MB, reading the weights takes no longer than the kernels
// before it. So each multiprocessor fetches all its rows of the weight into shared memory before it
// waits for its predecessor (griddepcontrol.wait), and multiplies once x is there. A row of the
// weight is multiplied by one warp, so no sums meet between blocks.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

class ResidentProducts {
 public:
  // `portable`: takes nothing, as on a device before Hopper.
  explicit ResidentProducts(bool portable);

  // Returns whether the kernel takes the operands: one row of bf16, and a plain bf16 weight that
  // fits, both aligned to 16 bytes.
  bool takes(const Tensor& x, const Linear& w) const;

  // out[1, out] = x[1, in] * w^T + bias; w [out, in], out bf16 or f32.
  void product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) const;

 private:
  int rows_per_block(const Linear& w) const;

  int multiprocessors_ = 0;
};

}  // namespace skiff::cuda
