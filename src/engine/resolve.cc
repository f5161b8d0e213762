#include "engine/resolve.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "arch/cost.h"
#include "base/load_error.h"
#include "base/processors.h"
#include "engine/step_executor.h"
#include "model/kv_cache.h"
#include "tensor/device_memory.h"

namespace skiff {
namespace {

constexpr int kFewestContext = 2;  // a prompt of one token and one of output
constexpr int kMostContext = 1 << 24, kMostRows = 1 << 20, kMostSeqs = 1 << 14;
constexpr int kDefaultContext = 32768, kDefaultRows = 8192, kFewestRows = 512;
constexpr int kLogitRows = 256, kMostCaptured = 1024;

void need_range(const char* flag, int value, int low, int high) {
  if (value < low || value > high)
    fail_load("{} is {}; it must be from {} to {}", flag, value, low, high);
}

int context_of(const EngineConfig& config, const ModelSpec& spec) {
  const int most = spec.max_context > 0 ? spec.max_context : kMostContext;
  if (most < kFewestContext)
    fail_load(
        "{}/{}: max_position_embeddings is {}; it must be at least {}, for a prompt of one "
        "token and one token of output",
        config.model, config.config_name, most, kFewestContext);
  if (config.max_model_len == 0) return std::min(most, kDefaultContext);
  need_range("--max-model-len", config.max_model_len, kFewestContext, kMostContext);
  if (config.max_model_len > most)
    fail_load("--max-model-len is {}, but {}/{} supports {} positions", config.max_model_len,
              config.model, config.config_name, most);
  return config.max_model_len;
}

int rows_of(const EngineConfig& config) {
  if (config.max_num_batched_tokens == 0) {
    // Room for a whole prompt beside all decodes, where it may not be cut.
    if (!config.chunked_prefill) return config.max_model_len + config.max_num_seqs;
    return std::max(
        {std::min(kDefaultRows, config.max_model_len), kFewestRows, config.max_num_seqs});
  }
  need_range("--max-num-batched-tokens", config.max_num_batched_tokens, 1, kMostRows);
  if (config.max_num_batched_tokens < config.max_num_seqs)
    fail_load(
        "--max-num-batched-tokens is {}, less than --max-num-seqs, {}: each running sequence "
        "needs a row",
        config.max_num_batched_tokens, config.max_num_seqs);
  return config.max_num_batched_tokens;
}

void check_tiers(const EngineConfig& config) {
  constexpr double kMostGb = 1 << 20;
  const auto check = [&](const char* flag, double gb) {
    if (!(gb >= 0 && gb <= kMostGb))
      fail_load("{} is {}; it must be from 0 to {} GB", flag, gb, kMostGb);
  };
  check("--swap-space", config.swap_space_gb);
  check("--kvcache-storage-size", config.storage_gb);
  const bool file = !config.storage_path.empty();
  if ((file || config.swap_space_gb > 0) && !config.prefix_caching)
    fail_load("{} keeps cached prefixes and needs --enable-prefix-caching",
              file ? "--kvcache-storage-backend" : "--swap-space");
}

// Where there is a file, the slots hold at least a whole context on its way from it.
int host_slots(const EngineConfig& config, const ModelSpec& spec) {
  constexpr int kBesides = 32, kMostSlots = 1 << 24;
  const auto block =
      static_cast<double>(KvCache::bytes_per_block(spec, config.block_size, config.dtype));
  const double slots = std::floor(config.swap_space_gb * kBytesPerGb / block);
  if (config.swap_space_gb > 0 && slots < 1)
    fail_load("--swap-space is {} GB, less than one block of {} bytes", config.swap_space_gb,
              block);
  const int in_swap = static_cast<int>(std::min<double>(slots, kMostSlots));
  if (config.storage_path.empty()) return in_swap;
  const int context = (config.max_model_len + config.block_size - 1) / config.block_size;
  return std::max(in_swap, context + kBesides);
}

// Less what is in use already, by this process or by another.
double share_of_device(const DeviceMemory& memory, double utilization) {
  const double used = static_cast<double>(memory.total - memory.free);
  return std::max(0.0, static_cast<double>(memory.total) * utilization - used);
}

std::string about(Device device, const DeviceMemory& memory, double utilization) {
  constexpr double kGiB = size_t{1} << 30;
  return fmt::format(
      "--gpu-memory-utilization {} of the {:.3f} GiB of CUDA device {}, less {:.3f} GiB in use "
      "already",
      utilization, static_cast<double>(memory.total) / kGiB, device.index,
      static_cast<double>(memory.total - memory.free) / kGiB);
}

// The device by the one name that every place after this reads: "cpu", "reference" or "cuda:N".
std::string name_of(const EngineConfig& config, Device device) {
  if (device.kind == Device::kCuda) return fmt::format("cuda:{}", device.index);
  return config.device == "reference" ? "reference" : "cpu";
}

}  // namespace

EngineConfig resolved(EngineConfig config, const ModelSpec& spec) {
  need_range("--max-num-seqs", config.max_num_seqs, 1, kMostSeqs);
  need_range("--block-size", config.block_size, 1, 4096);
  need_range("--threads", config.threads, 0, 1024);
  need_range("--num-gpu-blocks-override", config.num_blocks_override, 0, 1 << 24);
  if (config.steps_in_flight != 1 && config.steps_in_flight != 2)
    fail_load("steps in flight are {}; they must be 1 or 2", config.steps_in_flight);
  if (!(config.memory_utilization > 0 && config.memory_utilization <= 1))
    fail_load("--gpu-memory-utilization is {}; it must be above 0 and at most 1",
              config.memory_utilization);
  if (config.dtype != DType::kF32 && config.dtype != DType::kBF16)
    fail_load("--dtype is {}; it must be float32 or bfloat16", name(config.dtype));
  check_tiers(config);
  config.max_model_len = context_of(config, spec);
  config.max_num_batched_tokens = rows_of(config);
  config.device = name_of(config, device_of(config));
  if (config.threads == 0) config.threads = usable_processors();
  return config;
}

Limits limits_of(const EngineConfig& config, const ModelSpec& spec) {
  return {.max_seqs = config.max_num_seqs,
          .max_rows = config.max_num_batched_tokens,
          .max_context = config.max_model_len,
          .max_logit_rows = std::max(kLogitRows, config.max_num_seqs),
          .vocab = spec.vocab,
          .chunked_prefill = config.chunked_prefill,
          .policy = {.ageing = config.priority_ageing,
                     .long_prompt = config.long_prompt,
                     .row_context = doubling_context(spec),
                     .max_partial = config.max_partial_prefills,
                     .max_long_partial = config.max_long_partial_prefills,
                     .reserve = config.reserve_blocks,
                     .reserve_decay = config.reserve_decay,
                     .reserve_min = config.reserve_min}};
}

MemoryRequest memory_request(const EngineConfig& config, const ModelSpec& spec, const Ops& ops) {
  const Limits limits = limits_of(config, spec);
  const bool on_host = ops.device() == Device{};
  // --gpu-memory-utilization is a fraction of the device's whole memory, as in vLLM; on the CPU it
  // is a fraction of the memory that is free now.
  const DeviceMemory memory = on_host ? DeviceMemory{} : device_memory(ops.device());
  const double available = on_host
                               ? static_cast<double>(available_memory()) * config.memory_utilization
                               : share_of_device(memory, config.memory_utilization);
  return {
      .ops = ops,
      .compute = config.dtype,
      .block_size = config.block_size,
      .max_rows = limits.max_rows,
      .max_logit_rows = limits.max_logit_rows,
      .max_seqs = limits.max_seqs,
      .max_model_len = limits.max_context,
      .num_blocks_override = config.num_blocks_override,
      .host_slots = host_slots(config, spec),
      .scratch = StepExecutor::scratch_bytes(spec, config.dtype, limits, config.block_size, ops),
      .on_host = on_host,
      .available = static_cast<size_t>(available),
      .about = on_host ? "" : about(ops.device(), memory, config.memory_utilization)};
}

Device device_of(const EngineConfig& config) {
  const std::string_view device = config.device;
  if (device == "cpu" || device == "reference") return {};
  if (device == "auto" && num_cuda_devices() == 0) return {};
  if (device == "auto" || device == "cuda" || device == "gpu") return {Device::kCuda, 0};
  if (device.starts_with("cuda:")) {
    const std::string_view number = device.substr(5);
    int8_t index = 0;
    const auto [end, error] = std::from_chars(number.begin(), number.end(), index);
    if (error == std::errc{} && end == number.end()) return {Device::kCuda, index};
  }
  fail_load("--device is \"{}\"; it must be auto, cpu, cuda, cuda:N or reference", device);
}

std::unique_ptr<Ops> make_ops(const EngineConfig& config, const ModelSpec& spec) {
  const Device device = device_of(config);
  // Around experts one kernel wins nothing: 1 % more time was measured
  // (docs/performance_cuda_products.md).
  const bool dense = std::ranges::all_of(
      spec.layers, [](const Layer& layer) { return std::holds_alternative<Dense>(layer.ffn); });
  if (device.kind == Device::kCuda)
    return make_cuda_ops({.device = device.index,
                          .max_seqs = config.max_num_seqs,
                          .max_rows = config.max_num_batched_tokens,
                          .graphs = config.graphs,
                          .gather = dense && config.fuse_single_row});
  if (config.device == "reference") return make_reference_ops();
  return make_cpu_ops(config.threads);
}

std::vector<int> capture_sizes(const EngineConfig& config, Device device) {
  if (device == Device{} || !config.graphs) return {};
  std::vector<int> sizes = config.capture_sizes;
  if (sizes.empty()) {
    sizes = {1, 2, 4};
    constexpr std::pair<int, int> kLadder[] = {{128, 8}, {256, 16}, {1024, 32}};
    for (const auto& [last, step] : kLadder)
      while (sizes.back() < last) sizes.push_back(sizes.back() / step * step + step);
  }
  std::ranges::sort(sizes);
  std::erase_if(sizes, [&](int n) { return n < 1 || n >= config.max_num_seqs; });
  if (config.max_num_seqs <= kMostCaptured) sizes.push_back(config.max_num_seqs);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

}  // namespace skiff
