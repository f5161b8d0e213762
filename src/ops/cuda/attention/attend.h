// ops/cuda/attention/attend.h -- attention over the paged cache.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <vector>

#include "arch/spec.h"
#include "ops/batch.h"
#include "ops/cuda/attention/plan.h"
#include "ops/cuda/attention/widened_prefill.h"
#include "ops/cuda/deliver.h"
#include "ops/cuda/drafts/drafts.h"

namespace skiff::cuda {

// Ops::gqa_attend. Sequences with few rows go to a split-KV kernel, the others to a prefill kernel;
// a generic kernel takes what these do not (f32, odd head sizes or pages).
//
// In the generic and prefill kernels a row's result depends, bit for bit, on its position, its
// query and its context only. In the split-KV kernel it also depends on where its context is cut
// into shares, which follows from the lengths of all sequences of the step. With Limits::piece
// contexts are cut at fixed positions; over a cache of bf16 another kernel decodes, which adds in
// the order of the prefill kernel, and over a quantized one the split-KV kernel takes all rows:
// then a row's result depends on its position, its query and its context only. The same step gives
// the same bits every time: no result depends on the order in which blocks arrive.
//
// Graphs. In a step where no sequence has more than kMaxShares rows, the launches depend on the
// spec, on num_seqs and on num_tokens only; lengths are read from device memory that begin_step()
// fills, in stream order, outside any captured graph. A layer's first attend() outside a capture
// must come before the first inside one.
//
// Driven by one thread at a time, and on one stream.
class Attention {
 public:
  struct Limits {
    int max_seqs = 0, max_tokens = 0;
    int piece = 0;  // PlanShape::piece; a power of two from 2 on, or 0
  };
  // The memory that an Attention needs, on the device and pinned on the host, aligned to 256 bytes.
  struct Bytes {
    size_t device = 0, pinned = 0;
  };
  static Bytes bytes(const Limits& limits);

  // The memory need not be cleared, and must outlive the object. `portable`: as on a device before
  // Hopper. Without scratch, prompts over a quantized cache are converted tile by tile.
  Attention(const Limits& limits, std::byte* device, std::byte* pinned, cudaStream_t stream,
            bool portable = false, const WidenScratch& scratch = {});
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Plans the step for every kind of layer seen so far; the caller then makes the copies that are
  // added to `copies`, on that stream (deliver()). The host may be kPlansAhead calls ahead of the
  // device: this waits for what was launched before as many.
  void plan_step(const RaggedBatch& batch, std::vector<SmallCopy>& copies, cudaStream_t stream);
  // Adds the plans of this step, as they lie on the device, for rows that move back.
  void add_moved(std::vector<MovedPlan>& plans) const;
  // plan_step() and its copies.
  void begin_step(const RaggedBatch& batch, cudaStream_t stream);
  // Padding rows of `out` become zeros. `batch` is begin_step's.
  void attend(const Tensor& out, const Tensor& q, const Gqa& spec, const RaggedBatch& batch,
              const KvLayer& kv, cudaStream_t stream);

 private:
  struct Planned {
    PlanShape shape;
    int shares = 0, prefill_tiles = 0;
    bool captured = false;  // a graph reads this plan's memory
  };
  FoldScratch fold_scratch() const;
  size_t plan_for(const PlanShape& shape, const RaggedBatch& batch, cudaStream_t stream);
  SmallCopy make(size_t index, const RaggedBatch& batch);
  std::byte* device_plan(size_t index) const { return plans_ + index * layout_.bytes(); }

  PlanLayout layout_;
  int processors_;
  bool hopper_;  // if not, the generic kernel does everything
  int piece_;
  WidenScratch scratch_;
  std::byte *parts_, *folds_, *plans_, *pinned_;
  int32_t* arrived_;
  std::vector<Planned> planned_;
  size_t oldest_ = 0;                             // the plan that makes room next
  int buffer_ = 0;                                // the part of pinned_ that this step uses
  std::array<cudaEvent_t, kPlansAhead> ended_{};  // the steps that read each part
};

// The generic kernel alone: any mixture of f32 and bf16, any even head_dim up to 256, any page size
// and window; f32 throughout.
void gqa_attend_generic(const Tensor& out, const Tensor& q, const Gqa& spec,
                        const RaggedBatch& batch, const KvLayer& kv, cudaStream_t stream);

}  // namespace skiff::cuda
