#include "engine/resolve.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "arch/cost.h"
#include "arch/shard.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/processors.h"
#include "draft/methods.h"
#include "engine/resolve_checks.h"
#include "model/eagle.h"
#include "model/kv_cache.h"
#include "model/kv_cache_dtype.h"
#include "model/kv_scales.h"
#include "model/memory_plan.h"
#include "model/stored_forms.h"
#include "ops/kv_quant.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

constexpr int kMinContext = 2;  // one prompt token and one output token
constexpr int kMaxContext = 1 << 24, kMaxRows = 1 << 20, kMaxSlots = 1 << 24;
constexpr int kDefaultContext = 32768, kDefaultRows = 8192, kMinDefaultRows = 512;
constexpr int kMinLogitRows = 256, kMaxCaptured = 1024;

int context_of(const EngineConfig& config, const ModelSpec& spec) {
  const int supported = spec.max_context > 0 ? spec.max_context : kMaxContext;
  if (supported < kMinContext)
    fail_load(
        "{}/{}: max_position_embeddings is {}; it must be at least {}, for a prompt of one "
        "token and one token of output",
        config.model, config.config_name, supported, kMinContext);
  if (config.max_model_len == 0) return std::min(supported, kDefaultContext);
  need_range("--max-model-len", config.max_model_len, kMinContext, kMaxContext);
  if (config.max_model_len > supported)
    fail_load("--max-model-len is {}, but {}/{} supports {} positions", config.max_model_len,
              config.model, config.config_name, supported);
  return config.max_model_len;
}

int rows_of(const EngineConfig& config, int context) {
  if (config.max_num_batched_tokens == 0) {
    // If prompts may not be cut into chunks, a step has room for a whole prompt beside all decodes.
    if (!config.chunked_prefill) return context + config.max_num_seqs;
    return std::max({std::min(kDefaultRows, context), kMinDefaultRows, config.max_num_seqs});
  }
  need_range("--max-num-batched-tokens", config.max_num_batched_tokens, 1, kMaxRows);
  if (config.max_num_batched_tokens < config.max_num_seqs)
    fail_load(
        "--max-num-batched-tokens is {}, less than --max-num-seqs, {}: each running sequence "
        "needs a row",
        config.max_num_batched_tokens, config.max_num_seqs);
  return config.max_num_batched_tokens;
}

// The reference backend is too slow for it to matter, and where nothing decodes no step has to be
// short. Whether a draft is worth its row depends on the cost, too.
bool measures_steps(const EngineConfig& config, const model::ModelConfig& model,
                    const ComputeDevice& device) {
  const bool has_aim = config.chunked_prefill && std::isfinite(config.policy.step_seconds);
  return !model.pooling && (has_aim || config.speculation) &&
         device.kind != ComputeDevice::kReference;
}

// A draft that is checked has a row of logits. Large batches have no use for many of them.
int logit_rows_of(const EngineConfig& config) {
  constexpr int kMostOfDrafts = 256;
  const int drafts = config.speculation ? config.max_num_seqs * config.speculation->tokens : 0;
  return std::max(kMinLogitRows, config.max_num_seqs + std::min(drafts, kMostOfDrafts));
}

// The CUDA backend may compute prompts in another form than decodes. Devices before Hopper do not,
// for which a prompt's attention then counts as less than it takes.
LatentForm form_of_prompts(const EngineConfig& config, const ComputeDevice& device) {
  const bool may_expand = device.kind == ComputeDevice::kCuda && !config.batch_invariant;
  return may_expand ? LatentForm::kExpanded : LatentForm::kAbsorbed;
}

sched::Policy policy_of(const EngineConfig& config, const ModelSpec& spec,
                        const ComputeDevice& device, int context, bool measured) {
  sched::Policy policy = config.policy;
  if (policy.long_prompt <= 0 && !measured)
    policy.long_prompt = sched::default_long_prompt(context);
  policy.row_context = doubling_context(spec, form_of_prompts(config, device));
  if (config.speculation) policy.forced_rate = config.speculation->forced_rate;
  return config.peers.role == peer::Role::kPrefill ? sched::prefill_policy(policy) : policy;
}

sched::Limits limits_of(const EngineConfig& config, const ModelSpec& spec,
                        const ComputeDevice& device, bool measured) {
  const int context = context_of(config, spec);
  return {.max_seqs = config.max_num_seqs,
          .max_rows = rows_of(config, context),
          .max_context = context,
          .max_logit_rows = logit_rows_of(config),
          .vocab = spec.vocab,
          .chunked_prefill = config.chunked_prefill,
          .policy = policy_of(config, spec, device, context, measured)};
}

// Returns whether the checkpoint has calibrated scales for a cache of that dtype.
bool has_kv_scales(const EngineConfig& config, const model::ModelConfig& model, DType dtype) {
  if (dtype != DType::kI8 && dtype != DType::kF8E4M3) return false;
  if (config.load_format == model::LoadFormat::kDummy || !model::has_weight_files(config.model))
    return false;
  const auto scales = model::read_kv_scales(config.model, model, dtype);
  if (!scales) return false;
  if (model::are_placeholders(*scales)) {
    spdlog::warn(
        "all scales of the KV cache in {} are 1, so nothing was calibrated: they are not used, "
        "each token has its own",
        config.model);
    return false;
  }
  if (!config.quiet)
    spdlog::info(
        "the KV cache has the scales of the checkpoint; --kv-cache-scales token would "
        "make one for each token");
  return true;
}

KvFormat kv_of(const EngineConfig& config, const model::ModelConfig& model, DType act) {
  const DType dtype = config.kv_dtype.value_or(act);
  if (const auto refused = model::refuse_kv_cache(model.spec, dtype))
    fail_load("--kv-cache-dtype: {}", refused->what);
  KvFormat format = kv_format(dtype);
  const bool latents = std::ranges::any_of(model.spec.layers, [](const Layer& layer) {
    return std::holds_alternative<Mla>(layer.mixer);
  });
  format.fixed = !config.kv_token_scales && !latents && has_kv_scales(config, model, dtype);
  return format;
}

Precision precision_of(const EngineConfig& config, const model::ModelConfig& model) {
  const bool stored_in_16_bits = model.dtype == "bfloat16" || model.dtype == "float16";
  const DType dtype = config.dtype.value_or(stored_in_16_bits ? DType::kBF16 : DType::kF32);
  return {.weights = {.dtype = dtype}, .act = dtype, .kv = kv_of(config, model, dtype)};
}

// Bytes of a block with the parts of all ranks; `spec` is the whole model.
double block_bytes(const EngineConfig& config, const ModelSpec& spec,
                   const std::optional<DrafterSource>& drafter, const KvFormat& kv) {
  const ModelSpec local = cached_spec(*shard(spec, 0, config.tensor_parallel), drafter);
  return config.tensor_parallel *
         static_cast<double>(model::KvCache::bytes_per_block(local, config.block_size, kv));
}

// If there is a file, or other instances, the slots hold at least one whole context while it is
// being read. `block`: see block_bytes().
int host_slots(const EngineConfig& config, double block, int context) {
  constexpr int kExtraSlots = 32;
  const double slots = std::floor(config.swap_space_gb * kBytesPerGb / block / config.replicas);
  if (config.swap_space_gb > 0 && slots < 1)
    fail_load("--swap-space is {} GB, less than one block of {} bytes{}", config.swap_space_gb,
              block,
              config.replicas > 1 ? fmt::format(" for each of {} replicas", config.replicas) : "");
  const int in_swap = static_cast<int>(std::min<double>(slots, kMaxSlots));
  if (config.storage_path.empty() && config.peers.role == peer::Role::kMixed) return in_swap;
  const int blocks = (context + config.block_size - 1) / config.block_size;
  return std::max(in_swap, blocks + kExtraSlots);
}

// Returns how many blocks the shelf of a prefill instance holds. They have the form of one rank,
// that of the whole model.
int shelf_blocks(const EngineConfig& config, const ModelSpec& whole, const KvFormat& kv) {
  if (config.peers.role != peer::Role::kPrefill) return 0;
  const auto block =
      static_cast<double>(model::KvCache::bytes_per_block(whole, config.block_size, kv));
  const double blocks = std::floor(config.peers.buffer_gb * kBytesPerGb / block);
  if (blocks < 1)
    fail_load("--pd-buffer-size is {} GB, less than one block of {} bytes", config.peers.buffer_gb,
              block);
  return static_cast<int>(std::min<double>(blocks, kMaxSlots));
}

CacheSettings cache_of(const EngineConfig& config, int slots, int shelf) {
  CacheSettings cache{.block_size = config.block_size,
                      .prefix_caching = config.prefix_caching,
                      .spill = config.swap_space_gb > 0,
                      .host_slots = slots,
                      .storage_path = config.storage_path,
                      .storage_bytes = static_cast<uint64_t>(config.storage_gb * kBytesPerGb),
                      .storage_wait = config.storage_wait,
                      .peers = config.peers,
                      .shelf_blocks = shelf,
                      .version = config.version};
  if (config.num_blocks_override > 0) cache.num_blocks = config.num_blocks_override;
  return cache;
}

// Returns how many sequences run at a time where nobody says. A device computes 256 rows in hardly
// more time than it reads the weights in, so it gets as many as its memory holds keys and values
// for, at a length that most sequences stay below; a host computes each row in time of its own.
int seqs_of(const EngineConfig& config, const model::ModelConfig& model,
            const ComputeDevice& device, const Precision& precision,
            const model::SchemeChoice& schemes, std::span<const model::StoredForm> stored) {
  constexpr int kLeast = 8, kMost = 256, kMultiple = 8, kLength = 2048;
  constexpr double kWork = 3e9;  // bytes of activations and of what backend and sampler work with
  if (config.max_num_seqs > 0) return config.max_num_seqs;
  if (device.kind != ComputeDevice::kCuda || device.index >= num_cuda_devices()) return kLeast;
  const DeviceMemory memory = device_memory(device.memory());
  const double share = static_cast<double>(memory.total) * config.memory_utilization -
                       static_cast<double>(memory.total - memory.free);
  const double weights = static_cast<double>(model::parameter_count(model.spec)) *
                         model::bytes_per_weight(model.spec, precision, schemes, stored);
  const double each = static_cast<double>(model::KvCache::bytes_per_block(
                          model.spec, config.block_size, precision.kv)) *
                      std::min(context_of(config, model.spec), kLength) / config.block_size;
  // A model without attention needs no memory for a sequence.
  const double fit = each > 0 ? (share - weights - kWork) / each : kMost;
  const double seqs = std::clamp(fit, 1. * kLeast, 1. * kMost);
  return static_cast<int>(seqs) / kMultiple * kMultiple;
}

// Fusing operations on one row gains nothing between experts: it measured 1 % slower
// (docs/performance_cuda_products.md).
bool all_dense(const ModelSpec& spec) {
  return std::ranges::all_of(
      spec.layers, [](const Layer& layer) { return std::holds_alternative<Dense>(layer.ffn); });
}

// Returns the configured sizes, or FastDeploy's default sizes without their gap from 257 to 543.
std::vector<int> captures_of(const EngineConfig& config, const ComputeDevice& device) {
  if (device.kind != ComputeDevice::kCuda || !config.graphs) return {};
  std::vector<int> sizes = config.capture_sizes;
  if (sizes.empty()) {
    sizes = {1, 2, 4};
    constexpr std::pair<int, int> kLadder[] = {{128, 8}, {256, 16}, {1024, 32}};
    for (const auto& [last, step] : kLadder)
      while (sizes.back() < last) sizes.push_back(sizes.back() / step * step + step);
  }
  std::ranges::sort(sizes);
  std::erase_if(sizes, [&](int n) { return n < 1 || n >= config.max_num_seqs; });
  if (config.max_num_seqs <= kMaxCaptured) sizes.push_back(config.max_num_seqs);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

}  // namespace

model::ModelConfig read_model(const EngineConfig& config) {
  model::ModelConfig model =
      model::read_model_config(config.model, config.config_name, config.pooling);
  const model::SchemeChoice schemes =
      model::choose_schemes(config.quantization, config.quantization_config, model.spec);
  const bool differ =
      schemes.of(model::LayerKind::kExperts) != schemes.of(model::LayerKind::kDense) ||
      (config.load_format != model::LoadFormat::kDummy &&
       model::shared_experts_differ(config.model, model));
  if (differ) separate_shared_experts(model.spec);
  if (config.expert_parallel && (config.tensor_parallel > 1 || config.replicas > 1))
    deal_experts_whole(model.spec);
  if (config.speculation && config.speculation->method == draft::kEagle3)
    model.spec.taps = model::eagle_taps(config.speculation->model, model.spec);
  return model;
}

Resolved resolve(const EngineConfig& asked, const model::ModelConfig& model) {
  check_ranges(asked);
  check_speculation(asked, model);
  const ModelSpec& spec = model.spec;
  const ComputeDevice device = device_named(asked.device);
  check_nodes(asked);
  check_ranks(asked, spec, device);
  check_replicas(asked, device);
  check_sharing(asked, spec, device);
  const Precision precision = precision_of(asked, model);
  const model::SchemeChoice schemes =
      model::choose_schemes(asked.quantization, asked.quantization_config, spec);
  check_schemes(schemes, model.quantization);
  std::optional<DrafterSource> drafter;
  if (asked.speculation) {
    check_drafter(*asked.speculation, asked.tensor_parallel);
    drafter =
        find_drafter(*asked.speculation, asked.model, model, precision, asked.tensor_parallel);
  }
  EngineConfig config = asked;
  std::vector<model::StoredForm> stored;
  if (asked.load_format != model::LoadFormat::kDummy)
    stored = model::stored_forms(asked.model, model);
  config.max_num_seqs = seqs_of(asked, model, device, precision, schemes, stored);
  const bool measured = measures_steps(config, model, device);
  sched::Limits limits = limits_of(config, spec, device, measured);
  limits.generates = !model.pooling;
  const double block = block_bytes(config, spec, drafter, precision.kv);
  const int slots = host_slots(config, block, limits.max_context);
  const int shelf = shelf_blocks(config, whole_cached_spec(spec, drafter), precision.kv);
  return {.model = {.folder = config.model,
                    .config_name = config.config_name,
                    .format = config.load_format,
                    .seed = config.seed},
          .device = device,
          .ranks = config.tensor_parallel,
          .nodes = config.nodes,
          .whole_experts = deals_experts_whole(spec),
          .threads = config.threads > 0 ? config.threads : usable_processors(),
          .graphs = config.graphs,
          .gather = config.fuse_single_row && all_dense(spec),
          .batch_invariant = config.batch_invariant,
          .precision = precision,
          .schemes = schemes,
          .stored = std::move(stored),
          .limits = limits,
          .cache = cache_of(config, slots, shelf),
          .captures = model.pooling ? std::vector<int>{} : captures_of(config, device),
          .measures_steps = measured,
          .steps_in_flight = config.steps_in_flight,
          .logprobs = config.logprobs,
          .speculation = config.speculation,
          .drafter = std::move(drafter),
          .memory_utilization = config.memory_utilization,
          .replicas = config.replicas,
          .sharers = shares_experts(config, spec) ? config.replicas : 1};
}

Resolved replica_of(const Resolved& resolved, int index) {
  Resolved one = resolved;
  const int count = resolved.replicas;
  if (count == 1) return one;
  if (one.device.kind == ComputeDevice::kCuda)
    one.device.index = static_cast<int8_t>(index * resolved.ranks);
  if (one.sharers > 1) one.sharer = index;
  one.threads = std::max(1, resolved.threads / count + (index < resolved.threads % count ? 1 : 0));
  if (!one.cache.storage_path.empty() && index > 0)
    one.cache.storage_path += fmt::format("/replica-{}", index);
  one.cache.storage_bytes /= static_cast<uint64_t>(count);
  return one;
}

ComputeDevice device_named(std::string_view word) {
  if (word == "cpu") return {.kind = ComputeDevice::kCpu};
  if (word == "reference") return {.kind = ComputeDevice::kReference};
  if (word == "auto" && num_cuda_devices() == 0) return {.kind = ComputeDevice::kCpu};
  if (word == "auto" || word == "cuda" || word == "gpu") return {.kind = ComputeDevice::kCuda};
  if (word.starts_with("cuda:")) {
    const std::string_view number = word.substr(5);
    int8_t index = 0;
    const auto [end, error] = std::from_chars(number.begin(), number.end(), index);
    if (error == std::errc{} && end == number.end())
      return {.kind = ComputeDevice::kCuda, .index = index};
  }
  fail_load("--device is \"{}\"; it must be auto, cpu, cuda, cuda:N or reference", word);
}

}  // namespace skiff::engine
