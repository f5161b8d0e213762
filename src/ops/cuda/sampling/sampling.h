// ops/cuda/sampling/sampling.h -- Ops' operations on logits, on a stream; contracts in ops/ops.h.
// They allocate nothing and do not wait. All tensors but the logits may lie in page-locked host
// memory.
#pragma once
#include <cuda_runtime.h>

#include <map>

#include "ops/batch.h"

namespace skiff::cuda {

void store_edits(const EditPages& pages, const EditChanges& changes, cudaStream_t stream);
// `rows` and `allowed` are read while earlier kernels may still run, so none of these writes them.
void mask_logits(Tensor logits, Tensor rows, Tensor allowed, cudaStream_t stream);
void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits,
                 cudaStream_t stream);
void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows,
                  cudaStream_t stream);
void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties,
              cudaStream_t stream);

void draw_logprobs(Tensor logits, const SampleBatch& batch, cudaStream_t stream);
void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks,
                  cudaStream_t stream);

// Sampling on the current device. On devices with clusters of blocks (capability 9 on) a cluster
// works on a row; on others, or if `portable`, a single block, which is slower.
class Sampling {
 public:
  struct Options {
    bool portable = false;
    size_t shared = 0;  // bytes of shared memory that a block may use; 0: all that the device has
    // Rows are sampled by histogram, however many they are: the kernels for many rows round sums
    // otherwise, and could draw another token.
    bool one_way = false;
  };
  // `memory`: bytes() of the current device, which must outlive this and be used in one stream
  // only.
  Sampling(void* memory, const Options& options);
  static size_t bytes(bool portable);
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch, cudaStream_t stream);
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen, cudaStream_t stream) const;

 private:
  int rows_at_once(int vocab);

  void* memory_;
  bool clusters_, one_way_;
  size_t shared_;
  std::map<int, int> rows_at_once_;  // sampled_at_once() of each vocabulary
};

}  // namespace skiff::cuda
