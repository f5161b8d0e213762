// ops/cuda/mla/expanded_attention.h -- latent attention in its un-absorbed form, for spans of many
// new rows.
#pragma once
#include <cuda_runtime.h>

#include "arch/spec.h"
#include "ops/batch.h"
#include "ops/cuda/mla/expand_kernels.h"
#include "ops/cuda/mla/expand_products.h"

namespace skiff::cuda {

// What Ops::latent_attend gets.
struct LatentStep {
  const Tensor& values;
  const Tensor& q;
  const Linear& absorb;
  const Linear& value;
  const Mla& spec;
  const RaggedBatch& batch;
  const KvLayer& cache;
};

// Computes the rows of the sequences of which expands() is true (expand_plan.h): their contexts are
// gathered from the cache as it holds them, keys and values of as many heads as fit in the scratch
// are expanded from them, and the rows attend to these; then the next heads. Keys and values are
// rounded to bf16, and so are the weights of values.
//
// Which rows these are follows from the lengths of the step, so a graph that holds these launches
// is one of a step of those lengths; a sequence of few rows has none in a step of any lengths.
// Driven by one thread at a time, and on one stream.
class ExpandedAttention {
 public:
  // Returns whether there is a kernel for these heads on this device.
  static bool suits(const Mla& spec);

  // On the device, and written by nobody else while attend() runs: kExpandScratch bytes at
  // `scratch`, HeadProducts::kScratchBytes at `product_scratch`.
  ExpandedAttention(std::byte* scratch, std::byte* product_scratch);

  // Returns whether attend() takes such tensors, and LatentAttention's kernels for Hopper the rest.
  bool takes(const LatentStep& step) const;
  // Returns whether there were such rows.
  bool attend(const LatentStep& step, cudaStream_t stream);

 private:
  struct Memory;
  void attend(const LatentStep& step, const ExpandPass& pass, cudaStream_t stream);
  void expand(const LatentStep& step, const ExpandPass& pass, const Memory& memory, int first_head,
              cudaStream_t stream);

  std::byte* scratch_;
  ExpandProducts products_;
  int processors_;
};

}  // namespace skiff::cuda
