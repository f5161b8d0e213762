#include "engine/backend.h"

#include <algorithm>
#include <limits>

#include "engine/step_executor.h"
#include "model/slots.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

constexpr double kGiB = size_t{1} << 30;

// Returns the device memory that this process may use: its share, less what this process or others
// already use.
double share_of_device(const DeviceMemory& memory, double utilization) {
  const double used = static_cast<double>(memory.total - memory.free);
  return std::max(0.0, static_cast<double>(memory.total) * utilization - used);
}

std::string about(Device device, const DeviceMemory& memory, double utilization) {
  return fmt::format(
      "--gpu-memory-utilization {} of the {:.3f} GiB of CUDA device {}, less {:.3f} GiB in use "
      "already",
      utilization, static_cast<double>(memory.total) / kGiB, device.index,
      static_cast<double>(memory.total - memory.free) / kGiB);
}

}  // namespace

std::unique_ptr<Ops> make_ops(const Resolved& resolved) {
  switch (resolved.device.kind) {
    case ComputeDevice::kReference:
      return make_reference_ops();
    case ComputeDevice::kCpu:
      return make_cpu_ops(resolved.threads);
    case ComputeDevice::kCuda:
      break;
  }
  const int drafted = resolved.drafter ? ModelDrafter::more_rows(resolved.limits) : 0;
  return make_cuda_ops({.device = resolved.device.index,
                        .max_seqs = resolved.limits.max_seqs,
                        .max_rows = resolved.limits.max_rows + drafted,
                        .graphs = resolved.graphs,
                        .gather = resolved.gather,
                        .batch_invariant = resolved.batch_invariant});
}

std::vector<WeightFormat> quantized_formats(const Resolved& resolved, const ModelSpec& spec,
                                            const Ops& ops) {
  return model::quantized_formats(model::kept_slots(
      model::slots_of(spec, resolved.ranks), resolved.precision, resolved.schemes, resolved.stored,
      [&](const WeightFormat& format) { return ops.multiplies(format); }));
}

std::vector<WeightFormat> drafter_formats(const Resolved& resolved, const Ops& ops) {
  SKIFF_CHECK(resolved.drafter, "nothing drafts");
  return model::quantized_formats(
      model::kept_slots(model::slots_of(resolved.drafter->spec, resolved.drafter->part.size),
                        resolved.precision, resolved.drafter->schemes, resolved.drafter->stored,
                        [&](const WeightFormat& format) { return ops.multiplies(format); }));
}

bool samples_drafts(const Resolved& resolved) {
  return resolved.drafter && resolved.drafter->tokens.empty() &&
         resolved.speculation->check.rule == DraftRule::kRejection;
}

namespace {

std::optional<model::MemoryRequest::Drafter> drafter_request(const Resolved& resolved,
                                                             const Ops& ops) {
  if (!resolved.drafter) return std::nullopt;
  const ModelSpec& spec = resolved.drafter->spec;
  return model::MemoryRequest::Drafter{
      .spec = spec,
      .schemes = resolved.drafter->schemes,
      .stored = resolved.drafter->stored,
      .ranks = resolved.drafter->part.size,
      .work = ModelDrafter::memory_bytes(spec,
                                         {.act = resolved.precision.act,
                                          .formats = drafter_formats(resolved, ops),
                                          .limits = resolved.limits,
                                          .tokens = resolved.speculation->model_tokens(),
                                          .sampled = samples_drafts(resolved)},
                                         resolved.cache.block_size, ops)};
}

}  // namespace

model::MemoryRequest memory_request(const Resolved& resolved, const ModelSpec& spec,
                                    const Ops& ops) {
  const sched::Limits& limits = resolved.limits;
  const double utilization = resolved.memory_utilization;
  const bool on_host = ops.device() == Device{};
  // --gpu-memory-utilization is a fraction of the device's whole memory, as in vLLM; on the CPU it
  // is a fraction of the memory that is free now.
  const DeviceMemory memory = on_host ? DeviceMemory{} : device_memory(ops.device());
  // Ranks of a host share its memory, and so do replicas that have weights of their own.
  const double available = on_host ? static_cast<double>(model::available_memory()) * utilization /
                                         (resolved.ranks_here() * resolved.sharers)
                                   : share_of_device(memory, utilization);
  return {.ops = ops,
          .precision = resolved.precision,
          .schemes = resolved.schemes,
          .stored = resolved.stored,
          .ranks = resolved.ranks,
          .block_size = resolved.cache.block_size,
          .max_rows = limits.max_rows,
          .max_logit_rows = limits.max_logit_rows,
          .max_seqs = limits.max_seqs,
          .max_model_len = limits.max_context,
          .num_blocks_override = resolved.cache.num_blocks.value_or(0),
          .host_slots = resolved.cache.host_slots,
          .scratch = StepExecutor::scratch_bytes(spec, resolved.precision.act,
                                                 quantized_formats(resolved, spec, ops), limits,
                                                 resolved.cache.block_size, ops),
          .drafter = drafter_request(resolved, ops),
          .on_host = on_host,
          .replicas = on_host ? resolved.replicas / resolved.sharers : 1,
          .available = static_cast<size_t>(available),
          .about = on_host ? "" : about(ops.device(), memory, utilization)};
}

std::string minimum_need(const Resolved& resolved, const ModelSpec& spec) {
  const sched::Limits& limits = resolved.limits;
  const auto plain = make_reference_ops();  // its prepared weights have the stored sizes
  const model::MemoryPlan plan =
      model::plan_memory(spec, {.ops = *plain,
                                .precision = resolved.precision,
                                .schemes = resolved.schemes,
                                .stored = resolved.stored,
                                .ranks = resolved.ranks,
                                .block_size = resolved.cache.block_size,
                                .max_rows = limits.max_rows,
                                .max_logit_rows = limits.max_logit_rows,
                                .max_seqs = 1,
                                .max_model_len = limits.max_context,
                                .available = std::numeric_limits<size_t>::max()});
  return fmt::format("the model needs {:.3f} GiB for one sequence of --max-model-len {}",
                     static_cast<double>(plan.total()) / kGiB, limits.max_context);
}

}  // namespace skiff::engine
