#include "ops/cuda/attention/attend.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/cuda/align.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/maps.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"

namespace skiff::cuda {
namespace {

constexpr size_t kMaxShapes = 8;  // kinds of layers
// For the results of pieces that several blocks share; more pieces are not divided (plan.h).
constexpr size_t kPiecesBytes = size_t{128} << 20;

PlanLayout layout_for(const Attention::Limits& limits) {
  return plan_layout(decode_blocks_per_processor(64) * attribute(cudaDevAttrMultiProcessorCount),
                     limits.max_seqs, limits.max_tokens, limits.piece > 0);
}

size_t parts_bytes(const PlanLayout& layout, int piece) {
  return 2 * static_cast<size_t>(layout.blocks) * decode_part_bytes(256) +
         (piece > 0 ? kPiecesBytes : 0);
}
// PlanShape::parts.
int max_parts(int head_dim) { return static_cast<int>(kPiecesBytes / decode_part_bytes(head_dim)); }
size_t arrived_bytes(const PlanLayout& layout, int piece) {
  const auto counters = static_cast<size_t>(piece > 0 ? max_parts(64) : layout.blocks);
  return (counters * sizeof(int32_t) + 255) / 256 * 256;
}

// One part for each warpgroup that can run (FoldScratch).
int max_folds() { return FoldScratch::kGroups * attribute(cudaDevAttrMultiProcessorCount); }
size_t fold_counter_bytes() {
  return (static_cast<size_t>(max_folds()) * sizeof(int32_t) + 255) / 256 * 256;
}
size_t fold_bytes(int piece) {
  if (piece == 0) return 0;
  return fold_counter_bytes() +
         static_cast<size_t>(max_folds()) * FoldScratch::kFloats * sizeof(float);
}

AttendArgs args_of(const Tensor& out, const Tensor& q, const Gqa& spec, const RaggedBatch& batch,
                   const KvLayer& kv) {
  SKIFF_CHECK_EQ(q.cols(), static_cast<int64_t>(spec.heads) * spec.head_dim);
  SKIFF_CHECK_EQ(out.cols(), q.cols());
  SKIFF_CHECK(out.dtype == q.dtype);
  check_head_dim(spec);
  return {.rows = rows_of(batch),
          .cache = cache_of(kv),
          .out = out.data,
          .q = q.data,
          .out_stride = out.row_stride,
          .q_stride = q.row_stride,
          .bf16 = is_bf16(q),
          .group = spec.heads / spec.kv_heads,
          .head_dim = spec.head_dim,
          .window = spec.window,
          .scale = 1 / std::sqrt(static_cast<float>(spec.head_dim)),
          .page_shift = static_cast<int>(std::bit_width(static_cast<unsigned>(kv.page_size))) - 1};
}

// TMA requires each stride to be a multiple of the one before it.
bool suits_tma(const CacheArgs& c) {
  const int64_t position = int64_t{c.kv_heads} * c.head_dim;
  return c.k_page % position == 0 && c.v_page % position == 0;
}

// Scales are copied in pieces of 16 bytes and more.
bool has_aligned_scales(const CacheArgs& c) {
  return c.scales == 0 ||
         (is_aligned(c.k_scale, 2 * c.k_scale_page) && is_aligned(c.v_scale, 2 * c.v_scale_page));
}

// Returns whether the kernels that read the cache by TMA take the shapes.
bool has_fast_kernels(const AttendArgs& a) {
  const bool aligned = is_aligned(a.q, 2 * a.q_stride) && is_aligned(a.out, 2 * a.out_stride);
  const int page = a.cache.page_size;
  return a.bf16 && a.cache.element != KvElement::kF32 && aligned && suits_tma(a.cache) &&
         has_aligned_scales(a.cache) && a.group <= kPackedRows &&
         (a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && page >= 16 &&
         std::has_single_bit(static_cast<unsigned>(page));
}

// Pieces are longer where they cost more: the prefill kernel has no shared memory for the folds of
// the largest heads, and the split-KV kernel merges the sums of four warps at the end of each.
int piece_factor(const AttendArgs& a) {
  if (is_quantized(a.cache.element)) return 2;
  return a.head_dim == 256 ? 4 : 1;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a graph is being captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Attention::Bytes Attention::bytes(const Limits& limits) {
  const PlanLayout layout = layout_for(limits);
  const size_t plans = kMaxShapes * layout.bytes();
  return {.device = parts_bytes(layout, limits.piece) + arrived_bytes(layout, limits.piece) +
                    fold_bytes(limits.piece) + plans,
          .pinned = kPlansAhead * plans};
}

Attention::Attention(const Limits& limits, std::byte* device, std::byte* pinned,
                     cudaStream_t stream, bool portable, const WidenScratch& scratch)
    : layout_(layout_for(limits)),
      processors_(attribute(cudaDevAttrMultiProcessorCount)),
      hopper_(!portable && current_runs_hopper_kernels()),
      piece_(limits.piece),
      scratch_(scratch),
      parts_(device),
      folds_(device + parts_bytes(layout_, piece_) + arrived_bytes(layout_, piece_)),
      plans_(folds_ + fold_bytes(piece_)),
      pinned_(pinned),
      arrived_(reinterpret_cast<int32_t*>(device + parts_bytes(layout_, piece_))) {
  SKIFF_CHECK(piece_ == 0 || (piece_ > 1 && std::has_single_bit(static_cast<unsigned>(piece_))));
  check(cudaMemsetAsync(arrived_, 0, arrived_bytes(layout_, piece_), stream), "clearing counters");
  if (piece_ > 0)
    check(cudaMemsetAsync(folds_, 0, fold_counter_bytes(), stream), "clearing counters");
  for (cudaEvent_t& event : ended_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  }
}

Attention::~Attention() {
  for (cudaEvent_t event : ended_) cudaEventDestroy(event);
}

FoldScratch Attention::fold_scratch() const {
  if (piece_ == 0) return {};
  return {.values = reinterpret_cast<float*>(folds_ + fold_counter_bytes()),
          .taken = reinterpret_cast<int32_t*>(folds_),
          .count = max_folds()};
}

// Makes the plan of one kind of layer in pinned memory; returns its copy to the device.
SmallCopy Attention::make(size_t index, const RaggedBatch& batch) {
  Planned& p = planned_[index];
  std::byte* host = pinned_ + (static_cast<size_t>(buffer_) * kMaxShapes + index) * layout_.bytes();
  const int back = batch.moved_back.slots.rows() > 0 ? kMostMovedBack : 0;
  const size_t used =
      make_plan(p.shape, batch.host_row_start, batch.host_kv_len, layout_, host, back);
  const auto& head = *reinterpret_cast<const PlanHead*>(host);
  p.shares = head.shares;
  p.prefill_tiles = head.prefill_tiles;
  const auto bytes = static_cast<int64_t>((used + 15) / 16 * 16);
  return {.to = device_plan(index),
          .from = host,
          .rows = 1,
          .row_bytes = bytes,
          .to_pitch = bytes,
          .from_pitch = bytes};
}

void Attention::plan_step(const RaggedBatch& batch, std::vector<SmallCopy>& copies,
                          cudaStream_t stream) {
  check(cudaEventRecord(ended_[static_cast<size_t>(buffer_)], stream), "recording an event");
  buffer_ = (buffer_ + 1) % kPlansAhead;
  check(cudaEventSynchronize(ended_[static_cast<size_t>(buffer_)]), "waiting for a step");
  for (size_t i = 0; i < planned_.size(); ++i) copies.push_back(make(i, batch));
}

void Attention::add_moved(std::vector<MovedPlan>& plans) const {
  const auto word = [](size_t offset) { return static_cast<int>(offset / sizeof(int32_t)); };
  for (size_t i = 0; i < planned_.size(); ++i) {
    std::byte* plan = device_plan(i);
    plans.push_back({.items = reinterpret_cast<int32_t*>(plan + layout_.shares()),
                     .count = planned_[i].shares,
                     .words = word(sizeof(DecodeShare)),
                     .kv_len = word(offsetof(DecodeShare, kv_len)),
                     .stored = word(offsetof(DecodeShare, stored))});
    plans.push_back({.items = reinterpret_cast<int32_t*>(plan + layout_.prefill()),
                     .count = planned_[i].prefill_tiles,
                     .words = word(sizeof(PrefillTile)),
                     .kv_len = word(offsetof(PrefillTile, kv_len))});
  }
}

void Attention::begin_step(const RaggedBatch& batch, cudaStream_t stream) {
  std::vector<SmallCopy> copies;
  plan_step(batch, copies, stream);
  deliver(copies, stream);
}

// The plan of a kind of layer; made now if this is the first such layer.
size_t Attention::plan_for(const PlanShape& shape, const RaggedBatch& batch, cudaStream_t stream) {
  const auto known = std::ranges::find(planned_, shape, &Planned::shape);
  size_t index = static_cast<size_t>(known - planned_.begin());
  if (known == planned_.end()) {
    SKIFF_CHECK(!capturing(stream), "attention of a new shape in a captured graph");
    if (planned_.size() < kMaxShapes) {
      planned_.push_back({shape});
    } else {
      index = oldest_++ % kMaxShapes;
      SKIFF_CHECK(!planned_[index].captured, "more than {} kinds of attention layers", kMaxShapes);
      planned_[index] = {shape};
      check(cudaStreamSynchronize(stream), "waiting until a plan's memory is free");
    }
    const SmallCopy plan = make(index, batch);
    deliver({&plan, 1}, stream);
  }
  planned_[index].captured |= capturing(stream);
  return index;
}

void Attention::attend(const Tensor& out, const Tensor& q, const Gqa& spec,
                       const RaggedBatch& batch, const KvLayer& kv, cudaStream_t stream) {
  if (batch.num_tokens == 0) return;
  const AttendArgs args = args_of(out, q, spec, batch, kv);
  if (!hopper_ || !has_fast_kernels(args)) return start_generic(args, stream);
  const bool quantized = is_quantized(args.cache.element);
  const int piece = piece_ * piece_factor(args);
  const size_t index = plan_for({.kv_heads = spec.kv_heads,
                                 .group = args.group,
                                 .window = spec.window,
                                 .blocks = processors_ * decode_blocks_per_processor(spec.head_dim),
                                 .piece = piece,
                                 .parts = max_parts(spec.head_dim),
                                 .decodes_all = piece > 0 && quantized},
                                batch, stream);
  const std::byte* plan = device_plan(index);
  const CacheMaps maps = cache_maps(args.cache, kv.k.rows());
  const float scale_log2 = args.scale * 1.44269504088896f;
  start_decode({.args = args,
                .plan = {.head = reinterpret_cast<const PlanHead*>(plan),
                         .begins = reinterpret_cast<const BlockBegin*>(plan + layout_.begins()),
                         .shares = reinterpret_cast<const DecodeShare*>(plan + layout_.shares())},
                .scale_log2 = scale_log2,
                .blocks = planned_[index].shape.blocks,
                .parts = parts_,
                .arrived = arrived_,
                .piece = piece},
               maps.k, maps.v, stream);
  if (planned_[index].prefill_tiles == 0) return;
  const PrefillArgs prefill = {
      .args = args,
      .tiles = reinterpret_cast<const PrefillTile*>(plan + layout_.prefill()),
      .count = planned_[index].prefill_tiles,
      .scale_log2 = scale_log2,
      .beside = true,
      .piece = piece,
      .folds = fold_scratch()};
  if (!quantized) return start_prefill(prefill, maps.k, maps.v, stream);
  const std::vector<WidenSpan> spans = widen_spans(planned_[index].shape, args.cache.page_size,
                                                   batch.host_row_start, batch.host_kv_len);
  if (!start_widened_prefill(prefill, spans, scratch_, stream))
    start_quantized_prefill(prefill, stream);
}

void gqa_attend_generic(const Tensor& out, const Tensor& q, const Gqa& spec,
                        const RaggedBatch& batch, const KvLayer& kv, cudaStream_t stream) {
  if (batch.num_tokens > 0) start_generic(args_of(out, q, spec, batch, kv), stream);
}

}  // namespace skiff::cuda
