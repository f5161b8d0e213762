// ops/cuda/linear/stream.h -- products that read their weights once, as fast as the memory gives.
//
// One kernel for few rows and many, dense or grouped by expert (Hopper only). The weights are the
// 64-row side of wgmma and the rows of x its N side (8 to 256), so that a handful of rows wastes
// nothing. All weight tiles, cut along the inner dimension too, form one list that the
// multiprocessors share evenly ("stream-K", Osama et al., arXiv 2301.03598); parts of one output
// tile meet in the workspace, where the last to finish adds them up in order. Weights are fetched
// before the kernel waits for its predecessor.
//
// For up to 128 rows the result of a dense product does not depend, bit for bit, on how many
// rows there are; that of a grouped one does, because the number of jobs moves the cuts.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/cuda/linear/jobs.h"
#include "tensor/tensor.h"

namespace skiff::cuda {

class StreamedProducts {
 public:
  // `workspace`: workspace_bytes() on the current device, which must outlive this; products that
  // use it must follow each other in one stream. Throws DeviceError where the driver cannot
  // describe tensors. `portable`: takes nothing, as on a device before Hopper.
  StreamedProducts(void* workspace, bool portable);
  static size_t workspace_bytes();

  // Whether a product can be done here: bf16 times bf16 on Hopper, rows of x and w on 16 bytes, and
  // for a gated one a width that is a multiple of 8.
  bool takes(const Tensor& x, const Tensor& w, bool gated) const;

  // out[rows, out] = x[rows, in] * w[out, in]^T + bias (f32 [out] or empty); out bf16 or f32.
  void product(Tensor out, Tensor x, Tensor w, Tensor bias, cudaStream_t stream) const;
  // out[rows, width] = act(gate) * up, where (gate, up) = x * w^T; w [2 * width, in], gate first.
  void gated_product(Tensor out, Tensor x, Tensor w, Act act, cudaStream_t stream) const;

  // The same for each job of a list on the device; w [experts, out or 2 * width, in]. Jobs hold at
  // most `rows_per_job` rows, one of job_rows()'s values. grouped() reads the list before it waits:
  // the list must have been there before the last kernel but one ended, as it is when
  // grouped_gated() with the same list comes right before it. With JobList::expert, x has one row
  // for all copies, or one for each.
  void grouped(Tensor out, Tensor x, Tensor w, const JobList& jobs, int rows_per_job,
               cudaStream_t stream) const;
  void grouped_gated(Tensor out, Tensor x, Tensor w, Act act, const JobList& jobs, int rows_per_job,
                     cudaStream_t stream) const;
  // How many rows jobs should have when `copies` rows are shared out among `experts`.
  static int job_rows(int64_t copies, int experts);

 private:
  struct Call;
  void run(const Call& call, cudaStream_t stream) const;

  void* workspace_;
  int multiprocessors_ = 0;
  bool hopper_ = false;
};

}  // namespace skiff::cuda
