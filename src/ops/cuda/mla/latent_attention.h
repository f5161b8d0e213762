// ops/cuda/mla/latent_attention.h -- latent attention over the paged cache.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <vector>

#include "arch/spec.h"
#include "ops/batch.h"
#include "ops/cuda/deliver.h"
#include "ops/cuda/drafts/drafts.h"
#include "ops/cuda/mla/attend_kernels.h"
#include "tensor/memory.h"

namespace skiff::cuda {

// Ops::mla_attend. On Hopper a kernel for bf16 caches and one for caches of 8-bit rows take any
// number of rows of bf16 queries of rank 512 and rope 64 (every published model) in pages of
// multiples of 64 positions; a generic kernel takes the rest. The two add in different orders, so
// that rows give what a bf16 cache with their values would give, but not its bits.
//
// In the generic kernel, and with Limits::whole in the others, a row's result depends, bit for bit,
// on its position, its query and its context only; over 8-bit rows as long as scales of one group
// of columns differ by at most 2^15 within a sequence. Otherwise it also depends on where its
// context is cut into shares, which follows from the lengths of all sequences of the step, and over
// 8-bit rows on the largest item. The same step gives the same bits every time: no result depends
// on the order in which blocks arrive.
//
// Graphs. The launch depends on the spec and on num_tokens only; lengths are read from device
// memory that begin_step() fills, in stream order, outside any captured graph. A number of heads
// must be seen outside a capture before it is inside one.
//
// Driven by one thread at a time, and on one stream.
class LatentAttention {
 public:
  struct Limits {
    int max_seqs = 0, max_tokens = 0;
    bool whole = false;  // LatentShape::whole
  };
  // Bytes of scratch that attend() needs on the device: nobody else writes them while it runs.
  static size_t scratch_bytes();
  // Bytes that one number of heads takes on the device, and half of those that it takes, pinned, on
  // the host.
  static size_t plan_bytes(const Limits& limits);

  // `portable`: as on a device before Hopper.
  LatentAttention(const Limits& limits, Device device, std::byte* scratch, bool portable);
  ~LatentAttention();
  LatentAttention(const LatentAttention&) = delete;
  LatentAttention& operator=(const LatentAttention&) = delete;

  // Takes the memory for so many heads, so that the first step does not. `skips`: as in attend().
  void reserve(int heads, bool skips, cudaStream_t stream);
  // Plans the step for every number of heads seen so far; the caller then makes the copies that are
  // added to `copies`, on that stream (deliver()). The host may be one step ahead of the device:
  // this waits for the end of the last step but one.
  void plan_step(const RaggedBatch& batch, std::vector<SmallCopy>& copies, cudaStream_t stream);
  // Adds the plans of this step, as they lie on the device, for rows that move back.
  void add_moved(std::vector<MovedPlan>& plans) const;
  // Padding rows of `out` become zeros. `batch` is begin_step's. `skips`: rows of sequences of
  // which expands() is true are left alone (expand_plan.h).
  void attend(const Tensor& out, const Tensor& q_latent, const Tensor& q_rope, const Mla& spec,
              const RaggedBatch& batch, const KvLayer& cache, cudaStream_t stream,
              bool skips = false);

 private:
  struct Planned {
    LatentShape shape;
    Buffer device, pinned;  // pinned: a part for each of kPlansAhead steps
    int items = 0;
  };
  Planned& planned_for(int heads, bool skips, const RaggedBatch* batch, cudaStream_t stream);
  SmallCopy make(Planned& p, const RaggedBatch& batch);

  LatentLayout layout_;
  Device device_;
  std::byte* scratch_;
  int blocks_;
  bool hopper_, whole_;
  std::vector<std::unique_ptr<Planned>> planned_;
  int buffer_ = 0;                                // the part of pinned memory that this step uses
  std::array<cudaEvent_t, kPlansAhead> ended_{};  // the steps that read each part
};

// The generic kernel alone.
void latent_attend_generic(const Tensor& out, const Tensor& q_latent, const Tensor& q_rope,
                           const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                           cudaStream_t stream);

}  // namespace skiff::cuda
