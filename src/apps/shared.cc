#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "apps/commands.h"
#include "apps/draft_tokens.h"
#include "apps/graph_flags.h"
#include "apps/parallel_flags.h"
#include "apps/scheduler_flags.h"
#include "apps/speculative_flags.h"
#include "base/load_error.h"
#include "base/log.h"
#include "download/static_models.h"
#include "draft/methods.h"
#include "gguf/gguf_files.h"
#include "model/kv_cache_dtype.h"
#include "model/stored_forms.h"

namespace skiff::apps {
namespace {

namespace fs = std::filesystem;

// The flag is a choice: its value is one of the names.
LogprobsMode logprobs_mode(std::string_view name) {
  const auto* const found = std::ranges::find(kLogprobsModeNames, name);
  return static_cast<LogprobsMode>(found - kLogprobsModeNames.begin());
}

// None for "auto".
std::optional<DType> dtype_named(const std::string& word) {
  if (word == "float32") return DType::kF32;
  if (word == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

std::optional<DType> kv_dtype_named(const std::string& word) {
  const auto dtype = model::kv_cache_dtype_named(word);
  if (!dtype) throw UsageError(fmt::format("--kv-cache-dtype: {}", dtype.error().what));
  return *dtype;
}

// Refuses a folder with Paddle's inference graph in the place of weights, where weights are needed.
void refuse_graph(const Args& args, const std::string& folder) {
  const bool runs = (args.command() & kRuns) != 0;
  if (!runs && args.command() != kQuantize) return;
  if ((runs && args.text("load-format") == "dummy") || model::has_weight_files(folder)) return;
  if (const std::string file = download::graph_in(folder); !file.empty())
    throw LoadError(download::advice_on_graph(folder, file));
}

void read_tiers(const Args& args, engine::EngineConfig& config) {
  config.swap_space_gb = args.number("swap-space");
  config.version = SKIFF_VERSION;
  if (args.command() != kServe && args.text("splitwise-role") != "mixed")
    throw UsageError(fmt::format("--splitwise-role {} is for skiff serve; leave it out here",
                                 args.text("splitwise-role")));
  const std::string backend = args.text("kvcache-storage-backend");
  config.storage_path = args.text("kvcache-storage-path");
  config.storage_gb = args.number("kvcache-storage-size");
  if (!backend.empty() && backend != "file")
    fail_load(
        "--kvcache-storage-backend is \"{}\", which is not there; file keeps blocks in a folder",
        backend);
  if (backend.empty() != config.storage_path.empty())
    fail_load("--kvcache-storage-backend file and --kvcache-storage-path FOLDER need each other");
}

}  // namespace

std::string tokenizer_folder(const Args& args, const std::string& folder) {
  return args.given("tokenizer") ? args.text("tokenizer") : folder;
}

std::string model_folder(const Args& args, size_t index) {
  const std::vector<std::string>& words = args.positional();
  const bool named = args.given("model");
  const size_t allowed = index + (named ? 0 : 1);
  if (words.size() > allowed)
    throw UsageError(fmt::format("unexpected argument \"{}\" (see skiff {} --help)", words[allowed],
                                 command_name(args.command())));
  if (!named && args.command() == kLibrary)
    throw UsageError("the option \"model\" is missing: the folder of a model, as in models/demo");
  if (!named && words.size() <= index)
    throw UsageError(fmt::format("skiff {0} needs a model folder, as in skiff {0} models/demo",
                                 command_name(args.command())));
  const std::string folder = named ? args.text("model") : words[index];
  const bool there = fs::exists(folder);
  if (const auto* graph = download::find_static_model(folder); graph && !there)
    throw LoadError(download::advice_on(*graph));
  if (!there)
    fail_load("{}: no such folder; MODEL is a local folder with config.json and weights", folder);
  // Commands that need the tokenizer alone also accept its file.
  if (!fs::is_directory(folder) && !(args.command() & (kTokenize | kConstrain)) &&
      gguf_file_of(folder).empty())
    fail_load("{}: neither a folder nor a *.gguf file", folder);
  refuse_graph(args, folder);
  return folder;
}

model::PoolingChoice pooling_choice(const Args& args) {
  model::PoolingChoice choice{.runner = args.text("runner"),
                              .convert = args.text("convert"),
                              .pooler = args.text("override-pooler-config")};
  const std::string task = args.text("task");
  if (task == "generate" && args.given("task")) choice.runner = "generate";
  if (task == "generate" || task == "auto") return choice;
  choice.runner = "pooling";
  if (task != "pooling") choice.convert = task == "score" ? "classify" : task;
  return choice;
}

engine::EngineConfig engine_config(const Args& args, const std::string& folder) {
  engine::EngineConfig config;
  config.model = folder;
  config.config_name = args.text("model-config-name");
  config.device = args.text("device");
  config.replicas = replicas_of(args);
  config.dtype = dtype_named(args.text("dtype"));
  config.quantization = args.text("quantization");
  config.quantization_config = args.text("quantization-config");
  config.pooling = pooling_choice(args);
  config.kv_dtype = kv_dtype_named(args.text("kv-cache-dtype"));
  config.kv_token_scales = args.text("kv-cache-scales") == "token";
  read_graphs(args, config);
  if (args.given("max-num-seqs"))
    config.max_num_seqs = static_cast<int>(args.integer("max-num-seqs"));
  config.max_num_batched_tokens = static_cast<int>(args.integer("max-num-batched-tokens"));
  config.max_model_len = static_cast<int>(args.integer("max-model-len"));
  config.block_size = static_cast<int>(args.integer("block-size"));
  config.num_blocks_override = static_cast<int>(args.integer("num-gpu-blocks-override"));
  config.memory_utilization = args.number("gpu-memory-utilization");
  config.prefix_caching = args.on("enable-prefix-caching");
  read_tiers(args, config);
  config.chunked_prefill = args.on("enable-chunked-prefill");
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  for (const std::string& warning : apply_scheduler_flags(args, environment, config))
    spdlog::warn("{}", warning);
  config.tensor_parallel = static_cast<int>(args.integer("tensor-parallel-size"));
  if (args.command() != kServe && args.given("engine-worker-queue-port"))
    spdlog::warn("--engine-worker-queue-port has no effect: skiff serve alone spans nodes");
  config.expert_parallel = args.on("enable-expert-parallel");
  if (args.command() & kServices) config.logprobs = logprobs_mode(args.text("logprobs-mode"));
  config.steps_in_flight = args.on("enable-overlap-schedule") ? 2 : 1;
  read_speculation(args, config);
  if (config.speculation && config.speculation->method == draft::kDraftModel)
    check_draft_tokens(tokenizer_folder(args, folder), config.speculation->model);
  if (!(args.command() & kRuns)) return config;
  config.load_format =
      args.text("load-format") == "dummy" ? model::LoadFormat::kDummy : model::LoadFormat::kAuto;
  config.threads = static_cast<int>(args.integer("threads"));
  config.seed = static_cast<uint64_t>(args.integer("seed"));
  return config;
}

SamplingParams sampling_params(const Args& args) {
  SamplingParams params;
  params.temperature = static_cast<float>(args.number("temperature"));
  params.top_p = static_cast<float>(args.number("top-p"));
  params.top_k = static_cast<int>(args.integer("top-k"));
  params.min_p = static_cast<float>(args.number("min-p"));
  params.repetition = static_cast<float>(args.number("repetition-penalty"));
  params.presence = static_cast<float>(args.number("presence-penalty"));
  params.frequency = static_cast<float>(args.number("frequency-penalty"));
  params.min_tokens = static_cast<int>(args.integer("min-tokens"));
  params.seed = static_cast<uint64_t>(args.integer("seed"));
  return params;
}

std::shared_ptr<const text::Tokenizer> need_tokenizer(const Args& args, const std::string& folder) {
  auto loaded = text::load_tokenizer(tokenizer_folder(args, folder));
  if (!loaded) throw LoadError(loaded.error().what);
  return std::move(*loaded);
}

std::vector<Token> eos_tokens(const model::ModelConfig& model, const text::Tokenizer* tokenizer) {
  std::vector<Token> eos = model.generation.eos;
  if (const auto id = tokenizer ? tokenizer->find(tokenizer->eos()) : std::nullopt)
    if (std::ranges::find(eos, *id) == eos.end()) eos.push_back(*id);
  std::erase_if(eos, [&](Token id) { return id >= model.spec.vocab; });
  return eos;
}

}  // namespace skiff::apps
