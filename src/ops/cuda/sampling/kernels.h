// ops/cuda/sampling/kernels.h -- the launches behind sampling.h, on plain pointers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace skiff::cuda {

struct LogitArgs {
  float* data;
  int64_t stride;  // elements
  int rows, vocab;
};

// The columns of a SampleBatch.
struct DrawArgs {
  const float *temperature, *top_p, *min_p;
  const int32_t* top_k;
  const int64_t *seed, *draw;
};

struct PageArgs {
  int32_t* token;
  float* add;
  int size;
};
// The columns of EditChanges and of LogitEdits.
struct ChangeArgs {
  const int32_t *at, *token;
  const float* add;
  int count;
};
struct EditArgs {
  const int32_t *row, *page, *count, *first;
  int pieces;
};

// The columns of DraftChecks.
struct CheckArgs {
  const int32_t *row, *draft_row, *token;
  const float *keep, *instead;
  int count;
};

// The rows of a mask, and the words that allow their tokens.
struct MaskArgs {
  const int32_t *row, *allowed;
  int64_t stride;  // words from one row's to the next one's
  int count;
};

// The lists of SeenTokens: {number of entries, 0}, then {token, count}.
struct SeenArgs {
  int2* lists;
  int64_t stride;  // pairs from one slot's list to the next one's
};
// The arguments of count_tokens().
struct CountArgs {
  const int32_t *slot, *token, *row;
  int count;
};
// The columns of Penalties.
struct PenaltyArgs {
  const int32_t *row, *slot;
  const float *divide, *once, *each;
  int rows;
};

struct LogprobArgs {
  const int32_t* chosen;
  float* chosen_logprob;
  int32_t* chosen_rank;
  int32_t* top_ids;  // [rows, top]
  float* top_logprobs;
  int top;
};

struct PassResult;  // see pass_result.cuh

// The dynamic shared memory that a block can have on the current device: between 41 and 220 KB on
// today's devices. Pieces that do not fit are read from device memory.
size_t max_shared();

// The resources of kernels: whether there are clusters of blocks; shared memory, at most
// max_shared(); sampled_at_once(), 0 without clusters; and, if that is not 0, device memory of
// sample_bytes() that only one stream uses.
struct SampleMeans {
  bool clusters;
  size_t shared;
  int at_once;
  void* memory;
};
// The number of rows of this vocabulary whose clusters are resident on the device at a time, if a
// block may use `shared` bytes of shared memory; 0 where a row does not fit.
int sampled_at_once(int vocab, size_t shared);
// Sampling by histogram, correct for every row: one kernel with a cluster, or a block, for each
// row.
void start_histograms(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                      const SampleMeans& means, cudaStream_t stream);
// Starts the sampling by histogram for the rows whose PassResult has no token yet; needs clusters.
void start_missed(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const PassResult* pass, const SampleMeans& means, cudaStream_t stream);
size_t sample_bytes();
void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const SampleMeans& means, cudaStream_t stream);
void start_draw_logprobs(const LogitArgs& logits, const DrawArgs& draw, cudaStream_t stream);
void start_checks(int32_t* ids, const LogitArgs& target, const LogitArgs& draft,
                  const CheckArgs& checks, cudaStream_t stream);
void start_changes(const PageArgs& pages, const ChangeArgs& changes, cudaStream_t stream);
void start_edits(const LogitArgs& logits, const PageArgs& pages, const EditArgs& edits,
                 cudaStream_t stream);
void start_masks(const LogitArgs& logits, const MaskArgs& masks, cudaStream_t stream);
void start_counts(const SeenArgs& seen, const CountArgs& counts, cudaStream_t stream);
void start_penalties(const LogitArgs& logits, const SeenArgs& seen, const PenaltyArgs& penalties,
                     cudaStream_t stream);
void start_logprobs(const LogitArgs& logits, const LogprobArgs& args, const SampleMeans& means,
                    cudaStream_t stream);
// The part of it for more top tokens than one pass finds; called by start_logprobs.
void start_places(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
