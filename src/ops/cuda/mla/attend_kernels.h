// ops/cuda/mla/attend_kernels.h -- the launches behind LatentAttention.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "ops/cuda/attention/args.h"
#include "ops/cuda/mla/plan.h"

namespace skiff::cuda {

// A latent cache: [page, position, rank + rope], f32 or bf16.
struct LatentCache {
  void* data;
  int64_t page_stride;  // elements from one page to the next
  int page_size;
  bool bf16;
};

// Query vector r * heads + h is row r's head h.
struct LatentArgs {
  Rows rows;
  LatentCache cache;
  void* out;
  const void *q_latent, *q_rope;
  int64_t out_stride, latent_stride, rope_stride;  // elements from one query vector to the next
  bool bf16;                                       // out and queries
  int heads, rank, rope;
  float scale;
};

// Any mixture of f32 and bf16, rank up to kMaxLatentRank, any page size; f32 throughout. A row's
// result depends on its position, its query and its context only, bit for bit. Padding rows get
// zeros.
constexpr int kMaxLatentRank = 1024, kMaxLatentRope = 256;
void start_latent_generic(const LatentArgs& args, cudaStream_t stream);

// A plan (plan.h) in device memory, and what the kernels work with: `parts` holds two of
// latent_part_bytes() per block.
struct LatentPlanArgs {
  LatentArgs args;
  const LatentHead* head;
  const LatentShare* shares;
  const int32_t* cut;
  const LatentItem* items;
  float scale_log2;  // scale / log(2)
  int blocks;
  std::byte* parts;
};
size_t latent_part_bytes();
// bf16, rank 512, rope 64, pages of multiples of 64 positions. Padding rows get zeros. `cache` is
// latent_map() of the cache.
// Two kernels: the second reduces the results of items that several groups share.
void start_latent(const LatentPlanArgs& args, const CUtensorMap& cache, cudaStream_t stream);
void start_latent_combine(const LatentPlanArgs& args, cudaStream_t stream);
CUtensorMap latent_map(const LatentCache& cache, int64_t pages);

}  // namespace skiff::cuda
