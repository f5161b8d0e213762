#include "ops/cuda/mla/latent_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/mla/args_of.h"

namespace skiff::cuda {
namespace {

LatentArgs args_of(const Tensor& out, const Tensor& q_latent, const Tensor& q_rope, const Mla& spec,
                   const RaggedBatch& batch, const KvLayer& cache) {
  SKIFF_CHECK_EQ(out.rows(), static_cast<int64_t>(batch.num_tokens) * spec.heads);
  SKIFF_CHECK_EQ(q_latent.rows(), out.rows());
  SKIFF_CHECK_EQ(q_rope.rows(), out.rows());
  SKIFF_CHECK_EQ(out.cols(), spec.kv_rank);
  SKIFF_CHECK_EQ(q_latent.cols(), spec.kv_rank);
  SKIFF_CHECK_EQ(q_rope.cols(), spec.rope_dim);
  SKIFF_CHECK(out.dtype == q_latent.dtype && out.dtype == q_rope.dtype);
  SKIFF_CHECK(spec.kv_rank <= kMaxLatentRank && spec.rope_dim <= kMaxLatentRope,
              "a latent of {} + {} elements; the CUDA backend takes up to {} + {}", spec.kv_rank,
              spec.rope_dim, kMaxLatentRank, kMaxLatentRope);
  return {.rows = rows_of(batch),
          .cache = latent_cache_of(cache, spec),
          .out = out.data,
          .q_latent = q_latent.data,
          .q_rope = q_rope.data,
          .out_stride = out.row_stride,
          .latent_stride = q_latent.row_stride,
          .rope_stride = q_rope.row_stride,
          .bf16 = is_bf16(out),
          .heads = spec.heads,
          .rank = spec.kv_rank,
          .rope = spec.rope_dim,
          .scale = spec.scale};
}

// Returns whether the kernels for tensor cores take the shapes. A tensor map requires each stride
// to be a multiple of the one before it.
bool is_fast(const LatentArgs& a) {
  const LatentCache& c = a.cache;
  const int64_t page_step = c.element == LatentElement::kBF16 ? c.vector_bytes : 16;
  const bool aligned = is_aligned(a.q_latent, 2 * a.latent_stride) &&
                       is_aligned(a.q_rope, 2 * a.rope_stride) &&
                       is_aligned(a.out, 2 * a.out_stride) && is_aligned(c.data);
  return a.bf16 && c.element != LatentElement::kF32 && a.rank == 512 && a.rope == 64 &&
         a.heads <= kMaxLatentHeads && c.page_size % kLatentTile == 0 &&
         c.page_bytes % page_step == 0 && aligned;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a graph is being captured");
  return status != cudaStreamCaptureStatusNone;
}

int processors() { return attribute(cudaDevAttrMultiProcessorCount); }

LatentLayout layout_for(const LatentAttention::Limits& limits) {
  return latent_layout(processors(), limits.max_seqs, limits.max_tokens);
}

}  // namespace

size_t LatentAttention::scratch_bytes() {
  return 2 * static_cast<size_t>(processors()) * latent_part_bytes();
}

size_t LatentAttention::plan_bytes(const Limits& limits) { return layout_for(limits).bytes(); }

LatentAttention::LatentAttention(const Limits& limits, Device device, std::byte* scratch,
                                 bool portable)
    : layout_(layout_for(limits)),
      device_(device),
      scratch_(scratch),
      blocks_(processors()),
      hopper_(!portable && current_runs_hopper_kernels()),
      whole_(limits.whole) {
  for (cudaEvent_t& event : ended_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  }
}

LatentAttention::~LatentAttention() {
  for (cudaEvent_t event : ended_) cudaEventDestroy(event);
}

// Makes the plan for one number of heads in pinned memory; returns its copy to the device.
SmallCopy LatentAttention::make(Planned& p, const RaggedBatch& batch) {
  std::byte* host = p.pinned.data() + static_cast<size_t>(buffer_) * layout_.bytes();
  const size_t used =
      make_latent_plan(p.shape, batch.host_row_start, batch.host_kv_len, layout_, host);
  p.items = reinterpret_cast<const LatentHead*>(host)->items;
  const auto bytes = static_cast<int64_t>((used + 15) / 16 * 16);
  return {.to = p.device.data(),
          .from = host,
          .rows = 1,
          .row_bytes = bytes,
          .to_pitch = bytes,
          .from_pitch = bytes};
}

void LatentAttention::plan_step(const RaggedBatch& batch, std::vector<SmallCopy>& copies,
                                cudaStream_t stream) {
  if (planned_.empty()) return;
  check(cudaEventRecord(ended_[static_cast<size_t>(buffer_)], stream), "recording an event");
  buffer_ = (buffer_ + 1) % kPlansAhead;
  check(cudaEventSynchronize(ended_[static_cast<size_t>(buffer_)]), "waiting for a step");
  for (const auto& planned : planned_) copies.push_back(make(*planned, batch));
}

void LatentAttention::add_moved(std::vector<MovedPlan>& plans) const {
  const auto word = [](size_t offset) { return static_cast<int>(offset / sizeof(int32_t)); };
  for (const auto& planned : planned_)
    plans.push_back({.items = reinterpret_cast<int32_t*>(planned->device.data() + layout_.items()),
                     .count = planned->items,
                     .words = word(sizeof(LatentItem)),
                     .kv_len = word(offsetof(LatentItem, kv_len)),
                     .stored = word(offsetof(LatentItem, stored))});
}

// Returns the plan for that number of heads, which the first call makes.
LatentAttention::Planned& LatentAttention::planned_for(int heads, bool skips,
                                                       const RaggedBatch* batch,
                                                       cudaStream_t stream) {
  const LatentShape shape = {.heads = heads, .blocks = blocks_, .whole = whole_, .skips = skips};
  for (const auto& planned : planned_)
    if (planned->shape == shape) return *planned;
  SKIFF_CHECK(!capturing(stream), "latent attention of {} heads for the first time in a graph",
              heads);
  planned_.push_back(
      std::make_unique<Planned>(Planned{.shape = shape,
                                        .device = Buffer(device_, layout_.bytes()),
                                        .pinned = Buffer::pinned(kPlansAhead * layout_.bytes())}));
  if (batch) {
    const SmallCopy plan = make(*planned_.back(), *batch);
    deliver({&plan, 1}, stream);
  }
  return *planned_.back();
}

void LatentAttention::reserve(int heads, bool skips, cudaStream_t stream) {
  if (hopper_ && heads <= kMaxLatentHeads) planned_for(heads, skips, nullptr, stream);
}

void LatentAttention::attend(const Tensor& out, const Tensor& q_latent, const Tensor& q_rope,
                             const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                             cudaStream_t stream, bool skips) {
  if (batch.num_tokens == 0) return;
  const LatentArgs args = args_of(out, q_latent, q_rope, spec, batch, cache);
  if (!hopper_ || !is_fast(args)) return start_latent_generic(args, stream);
  const Planned& planned = planned_for(spec.heads, skips, &batch, stream);
  const std::byte* plan = planned.device.data();
  const LatentPlanArgs planned_args = {
      .args = args,
      .head = reinterpret_cast<const LatentHead*>(plan),
      .shares = reinterpret_cast<const LatentShare*>(plan + layout_.shares()),
      .cut = reinterpret_cast<const int32_t*>(plan + layout_.cut()),
      .items = reinterpret_cast<const LatentItem*>(plan + layout_.items()),
      .scale_log2 = spec.scale * 1.44269504088896f,
      .blocks = blocks_,
      .parts = scratch_};
  if (args.cache.element == LatentElement::kRow)
    start_latent_rows(planned_args, stream);
  else
    start_latent(planned_args, latent_map(args.cache, cache.k.rows()), stream);
}

void latent_attend_generic(const Tensor& out, const Tensor& q_latent, const Tensor& q_rope,
                           const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                           cudaStream_t stream) {
  if (batch.num_tokens > 0)
    start_latent_generic(args_of(out, q_latent, q_rope, spec, batch, cache), stream);
}

}  // namespace skiff::cuda
