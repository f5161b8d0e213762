// ops/cuda/attention/attend_kernels.h -- the launches behind Attention.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "ops/cuda/attention/args.h"
#include "ops/cuda/attention/plan.h"

namespace skiff::cuda {

struct AttendArgs {
  Rows rows;
  CacheArgs cache;
  void* out;
  const void* q;
  int64_t out_stride, q_stride;  // elements
  bool bf16;                     // out and q
  int group, head_dim, window;   // group: query heads per kv head
  float scale;                   // scales the scores
  int page_shift = 0;            // log2 of the page size, where that is a power of two
};

// Any mixture of f32 and bf16, any cache, any even head_dim up to 256, any page size and window;
// f32 throughout. A row's result depends on its position, its query and its context only, bit for
// bit. Padding rows get zeros.
void start_generic(const AttendArgs& args, cudaStream_t stream);

// A plan (plan.h) in device memory.
struct PlanArgs {
  const PlanHead* head;
  const BlockBegin* begins;
  const DecodeShare* shares;
};

// Computes the shares of the plan: bf16 but for a quantized cache, head_dim 64, 128 or 256, page
// sizes that are powers of two from 16 on. Padding rows get zeros. The maps are cache_maps().
// `blocks` is the plan's. `parts` holds two of decode_part_bytes() per block, `arrived` one counter
// per block, zero before and afterwards. Where the plan has pieces, `parts` holds PlanShape::parts
// more, and `arrived` as many counters.
struct DecodeArgs {
  AttendArgs args;
  PlanArgs plan;
  float scale_log2;  // scale / log(2)
  int blocks;
  std::byte* parts;
  int32_t* arrived;
  int piece = 0;  // PlanShape::piece
};
size_t decode_part_bytes(int head_dim);         // at most as many as for 256
int decode_blocks_per_processor(int head_dim);  // at most as many as for 64
void start_decode(const DecodeArgs& args, const CUtensorMap& k, const CUtensorMap& v,
                  cudaStream_t stream);
// Does what start_decode() does, for a quantized cache.
void start_quantized_decode(const DecodeArgs& args, const CUtensorMap& k, const CUtensorMap& v,
                            cudaStream_t stream);

// Does what start_decode() does where the plan has pieces, over a cache of bf16; a row gets the
// same bits as in start_prefill(). PlanShape::piece is a power of two, at least 2.
void start_invariant_decode(const DecodeArgs& args, const CUtensorMap& k, const CUtensorMap& v,
                            cudaStream_t stream);

// Where warpgroups of the prefill kernel keep what they have folded: `count` parts of kFloats, as
// many as can be in use at the same time. `taken` is zero before and afterwards.
struct FoldScratch {
  static constexpr int kGroups = 2;         // warpgroups of a block
  static constexpr int kFloats = 64 * 256;  // 64 rows of the largest head
  float* values = nullptr;
  int32_t* taken = nullptr;
  int count = 0;
};

// Computes the first `count` prefill tiles of a plan; shapes as for decoding. Probabilities are
// rounded to bf16. `beside`: the previous kernel of the stream is the same step's start_decode,
// which need not be waited for. `piece`, as in PlanShape, needs `folds`; not over quantized caches.
struct PrefillArgs {
  AttendArgs args;
  const PrefillTile* tiles;
  int count;
  float scale_log2;
  bool beside;
  int piece = 0;
  FoldScratch folds = {};
};
void start_prefill(const PrefillArgs& args, const CUtensorMap& k, const CUtensorMap& v,
                   cudaStream_t stream);
// Does what start_prefill() does, for a quantized cache, which needs no maps.
void start_quantized_prefill(const PrefillArgs& args, cudaStream_t stream);

// Pages [first, first + pages) of a sequence, which become pages at, at + 1, ... of a copy.
struct WidenSpan {
  int32_t seq, first, pages, at;
};
constexpr int kMaxWidenSpans = 64;  // kernels get them by value

// Copies pages of a quantized cache as bf16 values: those of `heads` kv heads from `first_head` on,
// to [page, position, head, dim], with a page table like that of `rows`.
struct WidenArgs {
  Rows rows;
  CacheArgs cache;           // head_dim 64, 128 or 256
  int count = 0, pages = 0;  // spans, and their pages
  WidenSpan span[kMaxWidenSpans];
  int first_head, heads;
  void *k, *v;
  int32_t* table;
};
void start_widen(const WidenArgs& args, cudaStream_t stream);

}  // namespace skiff::cuda
