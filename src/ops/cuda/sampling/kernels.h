// ops/cuda/sampling/kernels.h -- the launches behind sampling.h, free of headers that nvcc cannot
// read.
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
// Of EditChanges and LogitEdits.
struct ChangeArgs {
  const int32_t *at, *token;
  const float* add;
  int count;
};
struct EditArgs {
  const int32_t *row, *page, *count, *first;
  const float* divide;
  int pieces;
};

struct LogprobArgs {
  const int32_t* chosen;
  float* chosen_logprob;
  int32_t* chosen_rank;
  int32_t* top_ids;  // [rows, top]
  float* top_logprobs;
  int top;
};

struct Notes;  // of a row, see notes.cuh

// Dynamic shared memory that a block may have on the current device: between 41 and 220 KB on those
// that there are. What is too large to be held in it is read where it is.
size_t most_shared();

// What kernels may use: clusters of blocks; shared memory, at most most_shared(); the number of
// sampled_at_once(), 0 without clusters; device memory of sample_bytes() that only one stream uses,
// if that number is not 0.
struct SampleMeans {
  bool clusters;
  size_t shared;
  int at_once;
  void* memory;
};
// Rows of this vocabulary that the device has room for at a time, each with a cluster of blocks
// that may use so much shared memory; 0: they are too long to be held.
int sampled_at_once(int vocab, size_t shared);
// A way that is right for every row; one kernel, a cluster of blocks for each row, or a block.
void start_histograms(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                      const SampleMeans& means, cudaStream_t stream);
// The same for the rows whose notes say that the token is not found yet; with clusters.
void start_missed(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const Notes* notes, const SampleMeans& means, cudaStream_t stream);
size_t sample_bytes();
void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const SampleMeans& means, cudaStream_t stream);
void start_changes(const PageArgs& pages, const ChangeArgs& changes, cudaStream_t stream);
void start_edits(const LogitArgs& logits, const PageArgs& pages, const EditArgs& edits,
                 cudaStream_t stream);
void start_logprobs(const LogitArgs& logits, const LogprobArgs& args, const SampleMeans& means,
                    cudaStream_t stream);
// The part of it that finds many best tokens, called by start_logprobs.
void start_places(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
