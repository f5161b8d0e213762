// ops/cuda/linear/stream.h -- GEMMs that stream their weights once, at the memory's bandwidth.
//
// One kernel for few rows and many, dense or grouped by expert (Hopper only). The weights are the
// M side of wgmma (64 rows) and the rows of x its N side (8 to 256), so that a small batch wastes
// nothing. All weight tiles, cut along the inner dimension too, form one list that the
// multiprocessors divide evenly (stream-K, Osama et al., arXiv 2301.03598). Partial sums of an
// output tile meet in the workspace, where the block that finishes last adds them up in order.
// Weights are loaded before the kernel waits for its predecessor.
//
// For up to 128 rows the result of a dense GEMM of plain weights does not depend, bit for bit, on
// the number of rows; that of a grouped GEMM does, because the number of jobs moves the cuts. With
// `one_order` no result depends on it: of more rows, whole tiles are summed in the pieces into
// which stream-K cuts those of up to 128, and grouped GEMMs are not cut.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/cuda/linear/jobs.h"
#include "ops/cuda/quant/inputs.h"
#include "ops/cuda/quant/split_shape.h"
#include "weights/linear.h"

namespace skiff::cuda {

class StreamedProducts {
 public:
  // `workspace`: workspace_bytes() on the current device, which must outlive this; products that
  // use it must follow each other in one stream. `inputs`: the same for rows of x that quantized
  // weights meet rounded; more rows than fit it are refused. Throws DeviceError where the driver
  // cannot encode tensor maps. `portable`: takes nothing, as on a device before Hopper.
  StreamedProducts(void* workspace, const InputScratch& inputs, bool portable,
                   bool one_order = false);
  const InputScratch& inputs() const { return inputs_; }
  static size_t workspace_bytes();

  // Returns whether these kernels take the operands: bf16 times bf16 weights (plain, or a stack as
  // Packing::kTiles) or quantized ones (quant/atoms.h) on Hopper, rows of x and w aligned to 16
  // bytes, and for a gated GEMM a width that is a multiple of 8.
  bool takes(const Tensor& x, const Linear& w, bool gated) const;

  // out[rows, out] = x[rows, in] * w^T + bias; w [out, in], out bf16 or f32.
  void product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) const;
  // out[rows, width] = act(gate) * up, where (gate, up) = x * w^T; w [2 * width, in], gate first,
  // without a bias.
  void gated_product(Tensor out, Tensor x, const Linear& w, Act act, cudaStream_t stream) const;

  // product() in whole tiles, each summed from the beginning of the inner dimension to its end,
  // whatever the number of rows.
  void product_in_one_chain(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) const;

  // The rows of a job, at most `rows`: a block has the sums of fewer where it scales them.
  static int rows_of_job(int rows, const Linear& w);
  // The best rows of a job when `copies` rows are routed to `experts`, of whose weights w has some.
  static int rows_of_jobs(int64_t copies, int experts, const Linear& w);

  // Returns whether the kernel of product() and gated_product() lets the next one start only once
  // all kernels before it are complete (launch.cuh).
  bool triggers_late(const Tensor& x, const Linear& w) const;

  // From now on, products of few rows leave room on their multiprocessors for others, beside which
  // they run. No result changes.
  void leave_room() { beside_ = true; }

  // Returns whether the device runs these kernels at all.
  bool runs() const { return hopper_; }

  // The grouped GEMMs: the same for each job of a list on the device, with w a stack and without a
  // bias. A job has at most `rows_per_job` rows, one of job_rows()'s values. grouped() reads the
  // list before griddepcontrol.wait: the list must have been complete before the last kernel but
  // one ended, as it is when grouped_gated() with the same list comes right before it, which also
  // keeps two grouped() from claiming tiles at once. With JobList::expert, x has one row for all
  // copies, or one for each. With JobList::jobs, weights that round x do so in place (meet()).
  // `met`: x is what these rows have become for w.
  void grouped(Tensor out, Tensor x, const Linear& w, const JobList& jobs, int rows_per_job,
               cudaStream_t stream, const std::optional<MetRows>& met = {}) const;
  void grouped_gated(Tensor out, Tensor x, const Linear& w, Act act, const JobList& jobs,
                     int rows_per_job, cudaStream_t stream,
                     const std::optional<MetRows>& met = {}) const;
  // grouped_gated(), and its outputs as meet() makes them in place for the stack `next`, bit for
  // bit, in one kernel: what grouped() takes as `met`. Scales of the outputs lie where scratch
  // begins. Returns nothing, with nothing started, where it takes two kernels.
  std::optional<MetRows> grouped_gated_rounded(Tensor out, const MetRows& met, const Linear& w,
                                               const Linear& next, Act act, const JobList& jobs,
                                               int rows_per_job, cudaStream_t stream) const;

 private:
  struct Call;
  Call gated_call(Tensor out, Tensor x, const Linear& w, Act act, const JobList& jobs, int rows,
                  const std::optional<MetRows>& met) const;
  void run(const Call& call, cudaStream_t stream) const;
  bool has_many_tiles(const Call& call, int job_rows, int tiles) const;
  int64_t jobs_expected(const Call& call, int job_rows) const;
  int rows_of_kernel(const Call& call) const;
  int tiles_at_once(const Call& call, int job_rows, int tiles) const;
  bool runs_in_clusters(const Call& call, cudaStream_t stream) const;
  bool is_direct(const Call& call) const;
  void run_direct(const Call& call, cudaStream_t stream) const;
  void run_dense(Call call, cudaStream_t stream) const;
  bool is_faster_whole(const Call& call) const;
  void run_in_one_order(Call call, cudaStream_t stream) const;
  int pieces_of(int tiles, int chunks) const;
  // 0: several calls.
  int rows_of_tiles(int64_t rows, int tiles, int chunks) const;

  void* workspace_;
  InputScratch inputs_;
  bool one_order_;
  int multiprocessors_ = 0;
  bool hopper_ = false, beside_ = false;
  atoms::ClusterPlaces places_ = {};
};

}  // namespace skiff::cuda
