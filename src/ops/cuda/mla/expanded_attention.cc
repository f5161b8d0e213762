#include "ops/cuda/mla/expanded_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/mla/args_of.h"

namespace skiff::cuda {
namespace {

CUtensorMap map_of(const Tensor& t) {
  const uint64_t size[] = {static_cast<uint64_t>(t.cols()), static_cast<uint64_t>(t.rows())};
  const uint64_t stride[] = {static_cast<uint64_t>(t.row_stride) * 2};
  const uint32_t box[] = {64, kExpandTile};
  return tensor_map(t.data, size, stride, box);
}

}  // namespace

// The parts of the scratch; keys and values are [heads, positions, 128].
struct ExpandedAttention::Memory {
  int32_t* next;
  Tensor rope, latents, keys, values;

  Memory(std::byte* at, int64_t positions, int64_t heads) : next(reinterpret_cast<int32_t*>(at)) {
    at += kExpandCounterBytes;
    const auto take = [&](std::initializer_list<int64_t> shape) {
      const Tensor t = host_tensor(at, DType::kBF16, shape);
      at += t.elements() * 2;
      return t;
    };
    rope = take({positions, kExpandRope});
    latents = take({std::min<int64_t>(positions, kExpandPiece), kExpandRank});
    keys = take({heads, positions, kExpandNope});
    values = take({heads, positions, kExpandValue});
  }
};

bool ExpandedAttention::suits(const Mla& spec) {
  return spec.kv_rank == kExpandRank && spec.rope_dim == kExpandRope &&
         spec.nope_dim == kExpandNope && spec.v_dim == kExpandValue;
}

ExpandedAttention::ExpandedAttention(std::byte* scratch, std::byte* product_scratch)
    : scratch_(scratch),
      products_(product_scratch),
      processors_(attribute(cudaDevAttrMultiProcessorCount)) {}

bool ExpandedAttention::takes(const LatentStep& step) const {
  const LatentCache cache = latent_cache_of(step.cache, step.spec);
  return suits(step.spec) && step.spec.heads <= kMaxLatentHeads &&
         cache.element != LatentElement::kF32 && cache.page_size % kLatentTile == 0 &&
         step.q.dtype == DType::kBF16 && step.values.dtype == DType::kBF16 && is_aligned(step.q) &&
         is_aligned(step.values) && is_aligned(cache.data, cache.page_bytes) &&
         is_plain(step.absorb, DType::kBF16) && is_plain(step.value, DType::kBF16) &&
         is_aligned(step.absorb.weight.data) && is_aligned(step.value.weight.data);
}

bool ExpandedAttention::attend(const LatentStep& step, cudaStream_t stream) {
  const int64_t heads = step.spec.heads;
  SKIFF_CHECK_EQ(step.q.cols(), heads * (kExpandNope + kExpandRope));
  SKIFF_CHECK_EQ(step.values.cols(), heads * kExpandValue);
  SKIFF_CHECK_EQ(step.absorb.experts, heads);
  SKIFF_CHECK_EQ(step.value.experts, heads);
  const std::vector<ExpandPass> passes =
      make_expand_passes(step.batch.host_row_start, step.batch.host_kv_len);
  for (const ExpandPass& pass : passes) attend(step, pass, stream);
  return !passes.empty();
}

// Gathers piece after piece, and expands it for these heads.
void ExpandedAttention::expand(const LatentStep& step, const ExpandPass& pass, const Memory& memory,
                               int first_head, cudaStream_t stream) {
  const int positions = pass.spans.positions;
  for (int first = 0; first < positions; first += kExpandPiece) {
    const int count = std::min(kExpandPiece, positions - first);
    start_expand_gather({.rows = rows_of(step.batch),
                         .cache = latent_cache_of(step.cache, step.spec),
                         .spans = pass.spans,
                         .latents = memory.latents.data,
                         .rope = first_head == 0 ? memory.rope.data : nullptr,
                         .first = first,
                         .count = count,
                         .next = memory.next},
                        stream);
    const Tensor latents = memory.latents.row_range(0, count);
    products_.keys(memory.keys, first, latents, step.absorb, first_head, stream);
    products_.values(memory.values, first, latents, step.value, first_head, stream);
  }
}

void ExpandedAttention::attend(const LatentStep& step, const ExpandPass& pass,
                               cudaStream_t stream) {
  const int64_t positions = pass.spans.positions;
  const int all = step.spec.heads, most = std::min(all, expanded_heads(positions));
  SKIFF_CHECK(most > 0, "a pass of {} positions", positions);
  const int groups = (all + most - 1) / most, each = (all + groups - 1) / groups;
  for (int first = 0; first < all; first += each) {
    const int heads = std::min(each, all - first);
    const Memory memory(scratch_, positions, heads);
    expand(step, pass, memory, first, stream);
    const auto rows_of_heads = [&](const Tensor& t) {
      return map_of(t.reshaped({heads * positions, t.dim[2]}));
    };
    start_expand_attend({.pass = pass,
                         .out = step.values.data,
                         .out_stride = step.values.row_stride,
                         .first_head = first,
                         .heads = heads,
                         .section = expand_section(heads),
                         .scale_log2 = step.spec.scale * 1.44269504088896f,
                         .next = memory.next},
                        {.q = map_of(step.q),
                         .k = rows_of_heads(memory.keys),
                         .rope = map_of(memory.rope),
                         .v = rows_of_heads(memory.values)},
                        processors_, stream);
  }
}

}  // namespace skiff::cuda
