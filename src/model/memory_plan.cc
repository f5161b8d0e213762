#include "model/memory_plan.h"

#include <algorithm>

#include "base/load_error.h"
#include "base/round_up.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/kv_cache_dtype.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

std::vector<Kept> kept_of(const std::vector<Slot>& slots, const MemoryRequest& request) {
  return kept_slots(slots, request.precision, request.schemes, request.stored,
                    [&](const WeightFormat& format) { return request.ops.multiplies(format); });
}

size_t weight_bytes(const ModelSpec& spec, const MemoryRequest& request) {
  const std::vector<Slot> slots = slots_of(spec, request.ranks);
  const std::vector<Kept> kept = kept_of(slots, request);
  size_t sum = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    WeightShape shape = slots[i].shape();
    shape.order = kept[i].order;
    sum += slots[i].kind == Slot::kLinear ? request.ops.prepared_bytes(shape, kept[i].format)
                                          : byte_size(kept[i].format.dtype, slots[i].elements());
  }
  return sum;
}

// A drafter has the dtypes of the model, and what it or its own checkpoint quantized.
size_t drafter_bytes(const MemoryRequest::Drafter& drafter, const MemoryRequest& request) {
  MemoryRequest own = request;
  own.schemes = drafter.schemes;
  own.stored = drafter.stored;
  own.ranks = drafter.ranks;
  return weight_bytes(drafter.spec, own);
}

// What makes the plan larger than the checkpoint, and the way out.
std::string about_widened(const ModelSpec& spec, const MemoryRequest& request) {
  const std::vector<std::string> widened =
      widened_formats(kept_of(slots_of(spec, request.ranks), request), request.stored);
  if (widened.empty()) return {};
  return fmt::format(
      "; the {} backend cannot multiply quantized weights of the checkpoint, so that they take as "
      "much as {} ({}): use --device cpu, or a checkpoint in a format that it multiplies "
      "(docs/quantization.md)",
      request.ops.name(), name(request.precision.weights.dtype), name_list(widened, 3));
}

int blocks_for(int64_t positions, int block_size) {
  return static_cast<int>((positions + block_size - 1) / block_size);
}

double gib(size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }

std::string row(std::string_view what, size_t bytes, std::string_view note) {
  return fmt::format("  {:<12} {:>9.3f} GiB  {}\n", what, gib(bytes), note);
}

[[noreturn]] void fail_plan(const MemoryPlan& plan, const ModelSpec& spec,
                            const MemoryRequest& request) {
  const std::string what =
      request.num_blocks_override > 0
          ? fmt::format("{} blocks (--num-gpu-blocks-override)", plan.blocks)
          : fmt::format("one sequence of --max-model-len {}", request.max_model_len) +
                (plan.replicas > 1 ? fmt::format(" in each of {} replicas", plan.replicas) : "");
  fail_load(
      "the model needs {:.3f} GiB for {}, {:.3f} GiB are available{}: lower --max-model-len, "
      "--max-num-seqs or --max-num-batched-tokens{}{}, choose --dtype bfloat16, {}{}{}or raise "
      "--gpu-memory-utilization{}\n{}",
      gib(plan.total()), what, gib(plan.available),
      plan.about.empty() ? "" : fmt::format(" ({})", plan.about),
      plan.host_slots > 0 ? ", or --swap-space or the KV cache storage" : "",
      plan.replicas > 1 ? ", or --data-parallel-size" : "",
      request.stored.empty() ? "--quantization or " : "",
      refuse_kv_cache(spec, DType::kI8) ? "--kv-cache-dtype fp8, " : "--kv-cache-dtype int8, ",
      plan.on_host ? "" : "stop what else uses the device (nvidia-smi names it) ",
      about_widened(spec, request), plan.table());
}

}  // namespace

std::string MemoryPlan::table() const {
  const size_t left = available - std::min(available, total());
  return row("weights", weights,
             fmt::format("{:.3f} B parameters", static_cast<double>(parameters) * 1e-9)) +
         row("activations", activations, "") +
         row("scratch", scratch, "batch, sampling and what the backend works with") +
         (drafter > 0 ? row("drafter", drafter, "weights of the model that drafts") : "") +
         row("kv cache", kv,
             fmt::format("{} blocks of {:.1f} KiB", blocks, static_cast<double>(kv_block) / 1024)) +
         (host_slots > 0 ? row("host tier", host(),
                               fmt::format("{} blocks more{}", host_slots,
                                           on_host ? "" : ", not on the device"))
                         : "") +
         row("total", total(),
             replicas > 1
                 ? fmt::format("the weights once, the rest for each of {} replicas", replicas)
                 : "") +
         row("available", available,
             fmt::format("{:.3f} GiB stay free{}{}", gib(left), about.empty() ? "" : "; ", about));
}

MemoryPlan plan_memory(const ModelSpec& spec, const MemoryRequest& request) {
  MemoryPlan plan{.parameters = parameter_count(spec, request.ranks),
                  .available = request.available,
                  .about = request.about};
  plan.weights = weight_bytes(spec, request);
  plan.activations = Decoder::arena_bytes(spec, request.precision.act, request.max_rows,
                                          request.max_logit_rows, request.ops);
  plan.scratch = request.scratch;
  plan.kv_block = KvCache::bytes_per_block(spec, request.block_size, request.precision.kv);
  if (request.drafter) {
    plan.drafter = drafter_bytes(*request.drafter, request);
    plan.scratch += request.drafter->work;
    plan.kv_block +=
        KvCache::bytes_per_block(request.drafter->spec, request.block_size, request.precision.kv);
  }
  const int least = blocks_for(request.max_model_len, request.block_size);
  const int64_t wanted = int64_t{least} * request.max_seqs;
  plan.host_slots = request.host_slots;
  plan.on_host = request.on_host;
  plan.replicas = request.replicas;
  const size_t fixed = plan.total();
  const size_t room = plan.available - std::min(plan.available, fixed);
  const auto affordable =
      static_cast<int64_t>(room / (plan.kv_block * static_cast<size_t>(plan.replicas)));
  plan.blocks = request.num_blocks_override > 0
                    ? request.num_blocks_override
                    : static_cast<int>(
                          std::clamp<int64_t>(affordable, least, std::max<int64_t>(wanted, least)));
  plan.kv = static_cast<size_t>(plan.blocks) * plan.kv_block;
  if (plan.total() > plan.available) fail_plan(plan, spec, request);
  return plan;
}

double bytes_per_weight(const ModelSpec& spec, const Precision& precision,
                        const SchemeChoice& schemes, std::span<const StoredForm> stored) {
  double size = 0, elements = 0;
  const std::vector<Slot> slots = slots_of(spec);
  const std::vector<Kept> kept =
      kept_slots(slots, precision, schemes, stored, [](const WeightFormat&) { return true; });
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.kind != Slot::kLinear) continue;
    const WeightFormat& format = kept[i].format;
    const auto count = static_cast<double>(slot.elements());
    elements += count;
    size += count * bits(format.dtype) / 8;
    if (!format.quantized()) continue;
    const double block_out = format.block_out ? format.block_out : static_cast<double>(slot.out);
    const double block_in = format.block_in ? format.block_in : static_cast<double>(slot.in);
    const int block_bits = bits(*format.scale) + (format.zero ? bits(*format.zero) : 0);
    size += count / (block_out * block_in) * block_bits / 8;
  }
  return size / elements;
}

size_t parameter_count(const ModelSpec& spec, int ranks) {
  size_t sum = 0;
  for (const Slot& slot : slots_of(spec, ranks)) {
    if (is_tied_head(slot, spec)) continue;
    sum += static_cast<size_t>(slot.elements()) + (slot.bias ? static_cast<size_t>(slot.out) : 0);
  }
  return sum;
}

}  // namespace skiff::model
