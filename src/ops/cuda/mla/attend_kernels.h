// ops/cuda/mla/attend_kernels.h -- the launches behind LatentAttention.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/attention/args.h"
#include "ops/cuda/mla/plan.h"

namespace skiff::cuda {

// What a cached vector consists of: rank + rope floats, or a row of ops/latent_row.h.
enum class LatentElement : uint8_t { kF32, kBF16, kRow };

// A latent cache: [page, position] of vectors of `vector_bytes`.
struct LatentCache {
  std::byte* data;
  int64_t page_bytes;  // from one page to the next
  int page_size, vector_bytes;
  LatentElement element;
  int scales_at, rope_at;  // kRow: where in a vector the scales and the rotated key begin
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

// Any mixture of f32, bf16 and rows, rank up to kMaxLatentRank, any page size; f32 throughout. A
// row's result depends on its position, its query and its context only, bit for bit. Padding rows
// get zeros.
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
// bf16 queries, rank 512, rope 64, pages of multiples of 64 positions. Padding rows get zeros. Two
// kernels: the second reduces the results of items that several groups share. One of them takes a
// bf16 cache, of which `map` is latent_map(), the other a cache of rows.
void start_latent(const LatentPlanArgs& args, const CUtensorMap& map, cudaStream_t stream);
void start_latent_rows(const LatentPlanArgs& args, cudaStream_t stream);
void start_latent_combine(const LatentPlanArgs& args, cudaStream_t stream);
CUtensorMap latent_map(const LatentCache& cache, int64_t pages);

}  // namespace skiff::cuda
