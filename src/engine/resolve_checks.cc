#include "engine/resolve_checks.h"

#include <algorithm>

#include "arch/shard.h"
#include "base/load_error.h"
#include "base/log.h"
#include "comm/devices/group.h"
#include "comm/nccl/group.h"
#include "draft/methods.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

constexpr int kMaxSeqs = 1 << 14;
constexpr int kMaxReplicas = 128;  // an index of a CUDA device has as many values
constexpr int kMaxRanks = 64;

void check_tiers(const EngineConfig& config) {
  constexpr double kMaxGb = 1 << 20;
  const auto check = [&](const char* flag, double gb) {
    if (!(gb >= 0 && gb <= kMaxGb))
      fail_load("{} is {}; it must be from 0 to {} GB", flag, gb, kMaxGb);
  };
  check("--swap-space", config.swap_space_gb);
  check("--kvcache-storage-size", config.storage_gb);
  const bool file = !config.storage_path.empty();
  if (config.peers.role != peer::Role::kMixed && !config.prefix_caching)
    fail_load("--splitwise-role needs --enable-prefix-caching: blocks are found by their names");
  if ((file || config.swap_space_gb > 0) && !config.prefix_caching)
    fail_load("{} keeps cached prefixes and needs --enable-prefix-caching",
              file ? "--kvcache-storage-backend" : "--swap-space");
}

void warn_of_experts(const EngineConfig& config, const ModelSpec& spec) {
  const bool mixture = std::ranges::any_of(
      spec.layers, [](const Layer& layer) { return std::holds_alternative<Moe>(layer.ffn); });
  if (!mixture)
    spdlog::warn("--enable-expert-parallel changes nothing: {} has no experts", spec.arch);
  else if (config.tensor_parallel == 1 && config.replicas == 1)
    spdlog::warn(
        "--enable-expert-parallel changes nothing with one rank, which has all experts; "
        "--tensor-parallel-size or --data-parallel-size says among how many they are shared");
}

// Names the flag with which a mixture could be shared out among `ranks`, if only experts are in the
// way.
std::string way_out(ModelSpec spec, int ranks) {
  deal_experts_whole(spec);
  if (!deals_experts_whole(spec) || !shard(spec, 0, ranks)) return "";
  return "; with --enable-expert-parallel ranks have experts whole, and this size fits, too";
}

std::string devices_from(int there, const ComputeDevice& device) {
  return fmt::format("{} CUDA devices{}", there,
                     device.index > 0 ? fmt::format(" from cuda:{} on", device.index) : "");
}

// Ranks on the devices of several nodes exchange through NCCL.
void check_cuda_nodes(const EngineConfig& config, const ComputeDevice& device, int there) {
  const int ranks = config.tensor_parallel, nodes = config.nodes.nodes, here = ranks / nodes;
  if (here > there)
    fail_load(
        "--tensor-parallel-size {} on {} nodes gives each node {} ranks, but there are {}, and "
        "each rank needs one of its own: {}--device cpu",
        ranks, nodes, here, devices_from(there, device),
        there > 0 ? fmt::format("give --tensor-parallel-size {}, or ", nodes * there) : "use ");
  if (const std::string why = nccl::why_impossible(); !why.empty())
    fail_load(
        "--ips with --device cuda needs libnccl.so.2, NCCL {} or later, on every node: {}; "
        "install it (Debian: libnccl2), or name its folder in LD_LIBRARY_PATH",
        nccl::version_text(nccl::kLeastVersion), why);
}

// Every rank has a CUDA device of its own.
void check_cuda_ranks(const EngineConfig& config, const ComputeDevice& device) {
  const int ranks = config.tensor_parallel;
  const int there = std::max(0, num_cuda_devices() - device.index);
  if (config.nodes.nodes > 1) return check_cuda_nodes(config, device, there);
  if (ranks > devices::DeviceGroup::kMaxSize)
    fail_load("--tensor-parallel-size is {}; on cuda it is at most {}", ranks,
              devices::DeviceGroup::kMaxSize);
  if (ranks > there)
    fail_load(
        "--tensor-parallel-size is {}, but there are {}, and each rank needs one of its own: give "
        "--tensor-parallel-size {}, or --device cpu",
        ranks, devices_from(there, device), std::max(1, there));
}

}  // namespace

void need_range(const char* flag, int value, int low, int high) {
  if (value < low || value > high)
    fail_load("{} is {}; it must be from {} to {}", flag, value, low, high);
}

void check_ranges(const EngineConfig& config) {
  need_range("--max-num-seqs", config.max_num_seqs, 0, kMaxSeqs);
  if (!(config.policy.step_seconds >= 0))
    fail_load("--step-time is {} ms; it must be at least 0", config.policy.step_seconds * 1e3);
  need_range("--block-size", config.block_size, 1, 4096);
  need_range("--threads", config.threads, 0, 1024);
  need_range("--num-gpu-blocks-override", config.num_blocks_override, 0, 1 << 24);
  if (config.steps_in_flight != 1 && config.steps_in_flight != 2)
    fail_load("steps in flight are {}; they must be 1 or 2", config.steps_in_flight);
  if (!(config.memory_utilization > 0 && config.memory_utilization <= 1))
    fail_load("--gpu-memory-utilization is {}; it must be above 0 and at most 1",
              config.memory_utilization);
  if (config.dtype && config.dtype != DType::kF32 && config.dtype != DType::kBF16)
    fail_load("--dtype is {}; it must be float32 or bfloat16", name(*config.dtype));
  need_range("--data-parallel-size", config.replicas, 1, kMaxReplicas);
  check_tiers(config);
}

void check_replicas(const EngineConfig& config, const ComputeDevice& device) {
  if (config.replicas > 1 && config.peers.role != peer::Role::kMixed)
    fail_load(
        "--data-parallel-size {} with --splitwise-role: a server that only prefills or decodes is "
        "one engine; start one for each replica",
        config.replicas);
  if (config.replicas == 1 || device.kind != ComputeDevice::kCuda) return;
  const int ranks = config.tensor_parallel, there = num_cuda_devices();
  if (config.device.find(':') != std::string::npos)
    fail_load(
        "--device {} names one device, but --data-parallel-size {} needs one for each replica: "
        "give --device cuda, and the devices in CUDA_VISIBLE_DEVICES",
        config.device, config.replicas);
  if (config.replicas * ranks > there)
    fail_load(
        "--data-parallel-size is {}, but there are {} CUDA devices, and each replica needs {} of "
        "its own: give --data-parallel-size {}",
        config.replicas, there, ranks == 1 ? "one" : std::to_string(ranks),
        std::max(1, there / ranks));
}

bool shares_experts(const EngineConfig& config, const ModelSpec& spec) {
  return config.expert_parallel && config.replicas > 1 && deals_experts_whole(spec);
}

void check_sharing(const EngineConfig& config, const ModelSpec& spec, const ComputeDevice& device) {
  if (!shares_experts(config, spec)) return;
  const int replicas = config.replicas, ranks = config.tensor_parallel;
  const std::string asked =
      fmt::format("--data-parallel-size {} with --enable-expert-parallel", replicas);
  if (device.kind == ComputeDevice::kCuda && replicas > devices::DeviceGroup::kMaxSize)
    fail_load(
        "{}: on cuda more than {} replicas that share experts are not there yet; give "
        "--data-parallel-size {}, or leave --enable-expert-parallel out, and each replica has all "
        "experts",
        asked, devices::DeviceGroup::kMaxSize, devices::DeviceGroup::kMaxSize);
  // The last rank has the fewest experts.
  const model::RankOf last{.rank = ranks - 1, .size = ranks, .sharers = replicas};
  if (const auto part = model::spec_of(spec, last); !part)
    fail_load("{}: {}; give fewer replicas", asked, part.error().what);
}

void check_ranks(const EngineConfig& config, const ModelSpec& spec, const ComputeDevice& device) {
  const int ranks = config.tensor_parallel;
  need_range("--tensor-parallel-size", ranks, 1, kMaxRanks);
  if (config.expert_parallel) warn_of_experts(config, spec);
  if (ranks == 1) return;
  if (const auto part = shard(spec, 0, ranks); !part)
    fail_load("--tensor-parallel-size {}: {}{}", ranks, part.error().what, way_out(spec, ranks));
  if (device.kind == ComputeDevice::kCuda) check_cuda_ranks(config, device);
}

void check_nodes(const EngineConfig& config) {
  const int nodes = config.nodes.nodes, ranks = config.tensor_parallel;
  if (nodes == 1) return;
  if (ranks % nodes != 0)
    fail_load(
        "--tensor-parallel-size is {} and there are {} nodes: it counts the ranks on all nodes and "
        "must be a multiple of {}",
        ranks, nodes, nodes);
  if (config.replicas > 1)
    fail_load(
        "--data-parallel-size {} with one model over {} nodes is not there yet: give "
        "--data-parallel-size 1, or a multiple of {} for whole replicas on each node",
        config.replicas, nodes, nodes);
  const auto refuse = [&](const char* what) {
    fail_load(
        "{} with one model over {} nodes is not there yet: a block must lie whole on one node; "
        "leave it out",
        what, nodes);
  };
  if (!config.storage_path.empty()) refuse("--kvcache-storage-backend");
  if (config.peers.role != peer::Role::kMixed) refuse("--splitwise-role");
}

void check_speculation(const EngineConfig& config, const model::ModelConfig& model) {
  if (!config.speculation) return;
  if (model.pooling)
    fail_load(
        "--speculative-config drafts tokens, but the model is pooled and generates none; leave it "
        "out, or load the model with --runner generate");
  const draft::Settings& draft = *config.speculation;
  if (draft::find_method(draft.method) == nullptr && !draft::has_weights(draft.method))
    fail_load("--speculative-config: there is no method \"{}\"", draft.method);
  need_range("num_speculative_tokens", draft.tokens, 1, draft::kMaxTokens);
  need_range("num_model_steps", draft.model_steps, 0, draft.tokens);
  need_range("max_ngram_size", draft.max_ngram, 1, draft::kMaxNgram);
  need_range("min_ngram_size", draft.min_ngram, 1, draft.max_ngram);
  need_range("suffix_decoding_max_tree_depth", draft.max_depth, 1, 1 << 20);
  need_range("max_candidate_len", draft.check.candidates, 1, DraftCheck::kMostBest);
  need_range("verify_window", draft.check.window, 1, draft::kMaxTokens);
  need_range("relaxed_topk", draft.check.best, 1, DraftCheck::kMostBest);
  if (!(draft.check.delta >= 0 && draft.check.delta <= 1))
    fail_load("relaxed_delta is {}; it must be from 0 to 1", draft.check.delta);
  if (!(draft.max_factor > 0 && draft.max_factor <= 1e6))
    fail_load("suffix_decoding_max_spec_factor is {}; it must be above 0 and at most 1000000",
              draft.max_factor);
}

void check_drafter(const draft::Settings& settings, int ranks) {
  if (settings.ranks == 0 || settings.ranks == ranks) return;
  if (settings.ranks > 1)
    fail_load(
        "draft_tensor_parallel_size is {} and --tensor-parallel-size {}; a draft model is cut "
        "among all ranks, or each computes all of it: give {} or 1",
        settings.ranks, ranks, ranks);
  if (settings.method != draft::kDraftModel)
    fail_load(
        "draft_tensor_parallel_size is 1 and --tensor-parallel-size {}; all ranks compute a "
        "module together, as the model that it continues from: leave the key out",
        ranks);
}

void check_schemes(const model::SchemeChoice& schemes, const model::Quantization& quantization,
                   std::string_view asked) {
  const std::string& method = quantization.method;
  if (schemes.any() && !method.empty() && method != "fp8")
    fail_load(
        "{}: the checkpoint is quantized already ({}: {}), and only one whose \"quant_method\" is "
        "fp8 is rounded a second time; leave it out",
        asked, method, quantization.about);
}

}  // namespace skiff::engine
