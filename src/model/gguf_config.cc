#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/load_error.h"
#include "base/log.h"
#include "model/family.h"
#include "model/gguf_deepseek.h"
#include "weights/mapped_file.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

// Architectures of the format, and those of config.json with and without experts. What has keys of
// its own completes the configuration.
struct Architecture {
  std::string_view name, dense, moe;
  bool interleaved;
  void (*complete)(Json& config, const GgufKeys& keys) = nullptr;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", "MixtralForCausalLM", true},
    {"qwen2", "Qwen2ForCausalLM", "", false},
    {"qwen3", "Qwen3ForCausalLM", "", false},
    {"qwen3moe", "", "Qwen3MoeForCausalLM", false},
    {"ernie4_5", "Ernie4_5ForCausalLM", "", true},
    {"ernie4_5-moe", "", "Ernie4_5_MoeForCausalLM", true},
    {"deepseek", "", "DeepseekForCausalLM", true, complete_deepseek},
    {"deepseek2", "DeepseekV2ForCausalLM", "DeepseekV2ForCausalLM", false, complete_deepseek2},
};

// A key of the format after the architecture's name, and the keys of config.json.
struct KeyPair {
  std::string_view gguf;
  std::vector<std::string_view> config;
};
const std::vector<KeyPair>& keys() {
  static const std::vector<KeyPair> kKeys = {
      {"block_count", {"num_hidden_layers"}},
      {"embedding_length", {"hidden_size"}},
      {"feed_forward_length", {"intermediate_size"}},
      {"context_length", {"max_position_embeddings"}},
      {"attention.head_count", {"num_attention_heads"}},
      {"attention.head_count_kv", {"num_key_value_heads"}},
      {"attention.key_length", {"head_dim"}},
      {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}},
      {"attention.sliding_window", {"sliding_window"}},
      {"rope.freq_base", {"rope_theta"}},
      {"expert_count", {"num_experts", "num_local_experts", "moe_num_experts", "n_routed_experts"}},
      {"expert_used_count", {"num_experts_per_tok", "moe_k"}},
      {"expert_feed_forward_length", {"moe_intermediate_size"}},
      {"expert_shared_count", {"moe_num_shared_experts", "n_shared_experts"}},
      {"leading_dense_block_count", {"moe_layer_start_index", "first_k_dense_replace"}},
      {"interleave_moe_layer_step", {"moe_layer_interval"}},
  };
  return kKeys;
}

const GgufTensor* find(const GgufHeader& header, std::string_view name) {
  const auto found = std::ranges::find(header.tensors, name, &GgufTensor::name);
  return found == header.tensors.end() ? nullptr : &*found;
}

// Some writers give a number for each layer; all must be the same.
Json single(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_array()) return value;
  if (value.empty() || std::ranges::adjacent_find(value, std::not_equal_to<>()) != value.end())
    fail_load("{}: \"{}\" differs from layer to layer, which is not supported", where, key);
  return value.front();
}

void add_tokens(Json& config, const Json& metadata) {
  const auto id = [&](const char* key) { return metadata.value(key, Json(nullptr)); };
  config["bos_token_id"] = id("tokenizer.ggml.bos_token_id");
  Json eos = Json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"})
    if (const Json value = id(key); !value.is_null()) eos.push_back(value);
  config["eos_token_id"] = eos;
}

// Returns the scaling of rope in the keys of config.json, or null. Without a type it is linear, and
// older files call the factor "rope.scale_linear"; 0 and 1 stand for no scaling.
Json rope_scaling(const Json& metadata, const std::string& prefix, const std::string& where) {
  const std::string type = prefix + "rope.scaling.type";
  const Json value = metadata.value(type, Json("linear"));
  if (value == Json("none")) return nullptr;
  if (value != Json("linear"))
    fail_load("{}: \"{}\" {} is not supported; use the safetensors checkpoint", where, type,
              escaped(value.dump(), 60));
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const Json factor = metadata.value(prefix + key, Json(nullptr));
    if (factor.is_null()) continue;
    if (factor == Json(0) || factor == Json(1)) return nullptr;
    return {{"type", "linear"}, {"factor", factor}};
  }
  return nullptr;
}

}  // namespace

Json config_of_gguf(const GgufHeader& header, const std::string& where) {
  const Json& metadata = header.metadata;
  const auto named = metadata.find("general.architecture");
  if (named == metadata.end() || !named->is_string())
    fail_load("{}: \"general.architecture\" is missing", where);
  const auto name = named->get<std::string>();
  const auto* arch = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (arch == std::end(kArchitectures)) {
    std::vector<std::string_view> known;
    for (const Architecture& a : kArchitectures) known.push_back(a.name);
    fail_load("{}: architecture \"{}\" is not supported; known: {}", where, escaped(name, 60),
              name_list(known));
  }
  const std::string prefix = name + ".";
  Json config = Json::object();
  for (const KeyPair& pair : keys()) {
    const std::string key = prefix + std::string(pair.gguf);
    const auto found = metadata.find(key);
    if (found == metadata.end()) continue;
    for (const std::string_view to : pair.config) config[to] = single(*found, key, where);
  }
  const bool experts = config.value("num_experts", Json(0)) != Json(0);
  const std::string_view architecture = experts ? arch->moe : arch->dense;
  if (architecture.empty())
    fail_load("{}: \"{}expert_count\" does not go with the architecture \"{}\"", where, prefix,
              escaped(name, 60));
  config["architectures"] = {architecture};
  config["rope_interleaved"] = arch->interleaved;
  // The format has no key for it: its readers divide the weights of chosen experts by their sum.
  config["norm_topk_prob"] = true;
  config["tie_word_embeddings"] = find(header, "output.weight") == nullptr;
  config["dtype"] = "bfloat16";
  if (const GgufTensor* embed = find(header, "token_embd.weight"))
    config["vocab_size"] = embed->shape.front();
  if (arch->complete) arch->complete(config, {metadata, prefix, where});
  if (!config.contains("rope_scaling"))
    config["rope_scaling"] = rope_scaling(metadata, prefix, where);
  const bool biased = find(header, "blk.0.attn_q.bias") != nullptr;
  config["attention_bias"] = biased;
  if (!config.contains("sliding_window")) config["sliding_window"] = nullptr;
  add_tokens(config, metadata);
  return config;
}

void scale_gguf_rope(ModelSpec& spec, const GgufModel& model) {
  const GgufTensor* tensor = find(model.header, kGgufRopeFactors);
  if (!tensor) return;
  const std::string& path = model.files.at(tensor->file);
  const auto refuse = [&](const std::string& why) {
    fail_load("{}: the tensor \"{}\" {}", path, kGgufRopeFactors, why);
  };
  if (tensor->type != "F32" || tensor->shape.size() != 1)
    refuse("must be a vector in F32; write the file anew");
  const MappedFile file(path);
  if (tensor->end > file.bytes().size()) refuse("ends beyond the file, which became shorter");
  std::vector<float> factors(static_cast<size_t>(tensor->shape[0]));
  std::memcpy(factors.data(), file.bytes().data() + tensor->begin, factors.size() * sizeof(float));
  for (size_t i = 0; i < factors.size(); ++i)
    if (!(factors[i] >= 1e-3f && factors[i] <= 1e12f))
      refuse(fmt::format("has the factor {} for dimensions {}; it must be in [0.001, 1e12]",
                         factors[i], 2 * i));
  for_each_gqa(spec, [&](Gqa& m) {
    Rope& rope = m.rope;
    if (rope.dim != 2 * std::ssize(factors))
      refuse(fmt::format("has {} factors, heads have {} dimensions", factors.size(), rope.dim));
    if (!std::holds_alternative<std::monostate>(rope.scaling))
      refuse("is there besides another scaling of rope; keep one of them");
    rope.scaling = FactorScaling{factors};
  });
}

}  // namespace skiff::model
