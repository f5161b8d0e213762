// ops/cuda/mla/expand_kernels.h -- the launches behind ExpandedAttention.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "ops/cuda/mla/attend_kernels.h"
#include "ops/cuda/mla/expand_plan.h"

namespace skiff::cuda {

// The shape for which there are kernels.
constexpr int kExpandRank = 512, kExpandRope = 64, kExpandNope = 128, kExpandValue = 128;

// Copies positions [first, first + count) of a pass from their pages: latents [count, 512], and the
// rotated keys to rows [first, first + count) of `rope` [positions, 64], or none if that is null.
// Both bf16; past a context both get zeros. The cache is of bf16 or of rows.
struct ExpandGatherArgs {
  Rows rows;
  LatentCache cache;
  ExpandSpans spans;
  void *latents, *rope;
  int first, count;
  int32_t* next;  // becomes zero
};
void start_expand_gather(const ExpandGatherArgs& args, cudaStream_t stream);

// Attends with `heads` heads, the first of which is `first_head` of the queries and values. Row r
// of out has 128 values of each head from out + r * out_stride on.
struct ExpandAttendArgs {
  ExpandPass pass;
  void* out;
  int64_t out_stride;  // elements
  int first_head, heads;
  int section;       // heads whose keys and values are read at the same time, expand_section()
  float scale_log2;  // scale / log(2)
  int32_t* next;     // zero before; blocks count the tiles here that they have taken
};
constexpr int expand_section(int heads) {
  const int sections = (heads + 15) / 16;
  return (heads + sections - 1) / sections;
}
// Boxes of 64 columns and 128 rows: of the queries [rows, all heads * 192], of keys and values of
// `heads` heads [heads * positions, 128], and of the rotated keys [positions, 64].
struct ExpandMaps {
  CUtensorMap q, k, rope, v;
};
void start_expand_attend(const ExpandAttendArgs& args, const ExpandMaps& maps, int processors,
                         cudaStream_t stream);

}  // namespace skiff::cuda
