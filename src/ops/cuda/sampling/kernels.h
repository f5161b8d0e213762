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

struct EditArgs {
  const int32_t *row_start, *token;
  const float *divide, *add;
};

struct LogprobArgs {
  const int32_t* chosen;
  float* chosen_logprob;
  int32_t* chosen_rank;
  int32_t* top_ids;  // [rows, top]
  float* top_logprobs;
  int top;
};

void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  cudaStream_t stream);
void start_edits(const LogitArgs& logits, const EditArgs& edits, cudaStream_t stream);
void start_logprobs(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream);
// The part of it that finds many best tokens, called by start_logprobs.
void start_places(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
