#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <variant>

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

  bool experts_have_a_width() const { return moe != "MixtralForCausalLM"; }
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

// What the absence of a key means: that config.json would not have its keys either, a value, or
// that the file is not complete. The value null stands for the size that follows from others.
struct Unsaid {};
struct Needed {};
using Absent = std::variant<Unsaid, Json, Needed>;

// A key of the format after the architecture's name, and the keys of config.json.
struct KeyPair {
  const char* gguf;
  std::vector<std::string_view> config;
  Absent absent = Unsaid{};
};
const std::vector<KeyPair>& keys() {
  static const std::vector<KeyPair> kKeys = {
      {"block_count", {"num_hidden_layers"}, Needed{}},
      {"embedding_length", {"hidden_size"}, Needed{}},
      {"feed_forward_length", {"intermediate_size"}, Needed{}},
      {"context_length", {"max_position_embeddings"}, Needed{}},
      {"attention.head_count", {"num_attention_heads"}, Needed{}},
      {"attention.head_count_kv", {"num_key_value_heads"}, Json(nullptr)},
      {"attention.key_length", {"head_dim"}, Json(nullptr)},
      {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, Needed{}},
      {"attention.sliding_window", {"sliding_window"}, Json(nullptr)},
      {"rope.freq_base", {"rope_theta"}, Json(1e4)},
      {"expert_count", {"num_experts", "num_local_experts", "moe_num_experts", "n_routed_experts"}},
      {"expert_used_count", {"num_experts_per_tok", "moe_k"}},
      {"expert_feed_forward_length", {"moe_intermediate_size"}},
      {"expert_shared_count", {"moe_num_shared_experts", "n_shared_experts"}, Json(0)},
      {"leading_dense_block_count", {"moe_layer_start_index", "first_k_dense_replace"}, Json(0)},
      {"interleave_moe_layer_step", {"moe_layer_interval"}},
  };
  return kKeys;
}

// Keys for sampling, which are the same for all architectures, and those of generation_config.json.
constexpr std::string_view kSampling[][2] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"}};

// Files have keys for two or three tokens that end a reply. Of models with more, llama.cpp knows
// the others by their texts.
constexpr std::string_view kEnds[] = {"<|eot_id|>",    "<|im_end|>",      "<|end|>",
                                      "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",
                                      "<EOT>",         "[EOT]",           "[EOS]"};

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
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  for (size_t i = 0; tokens != metadata.end() && tokens->is_array() && i < tokens->size(); ++i)
    if (const auto* text = (*tokens)[i].get_ptr<const std::string*>();
        text && std::ranges::find(kEnds, *text) != std::end(kEnds))
      eos.push_back(i);
  config["eos_token_id"] = eos;
}

void add_sampling(Json& config, const Json& metadata) {
  for (const auto& [key, to] : kSampling)
    if (const auto found = metadata.find(key); found != metadata.end()) config[to] = *found;
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

void add_sizes(Json& config, const GgufKeys& file) {
  for (const KeyPair& pair : keys()) {
    Json value = file.find(pair.gguf);
    if (!value.is_null())
      value = single(value, file.prefix + pair.gguf, file.where);
    else if (std::holds_alternative<Needed>(pair.absent))
      file.refuse(pair.gguf, GgufKeys::kMissing);
    else if (const Json* meant = std::get_if<Json>(&pair.absent))
      value = *meant;
    else
      continue;
    for (const std::string_view to : pair.config) config[to] = value;
  }
}

// Checks that rope rotates whole heads.
void check_rope_width(const Json& config, const GgufKeys& file) {
  const char* key = "rope.dimension_count";
  const Json turned = file.find(key);
  if (turned.is_null()) return;
  const auto hidden = int_in(config.at("hidden_size"), 1, kMaxWidth);
  const auto heads = int_in(config.at("num_attention_heads"), 1, kMaxHeads);
  if (!hidden || !heads) return;  // the family says what is wrong
  const Json& stated = config.at("head_dim");
  const Json whole = stated.is_null() ? Json(*hidden / *heads) : stated;
  if (turned != whole)
    file.refuse(key, fmt::format("is {}, heads have {} dimensions; rope of a part of each head is "
                                 "not supported",
                                 escaped(turned.dump(), 40), escaped(whole.dump(), 40)));
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
  const GgufKeys file{metadata, prefix, where};
  Json config = Json::object();
  add_sizes(config, file);
  const bool experts = config.value("num_experts", Json(0)) != Json(0);
  const std::string_view architecture = experts ? arch->moe : arch->dense;
  if (architecture.empty())
    fail_load("{}: \"{}expert_count\" does not go with the architecture \"{}\"", where, prefix,
              escaped(name, 60));
  if (experts) {
    file.need("expert_used_count");
    if (arch->experts_have_a_width()) file.need("expert_feed_forward_length");
  }
  config["architectures"] = {architecture};
  config["rope_interleaved"] = arch->interleaved;
  // The format has no key for it: its readers divide the weights of chosen experts by their sum.
  config["norm_topk_prob"] = true;
  config["tie_word_embeddings"] = find(header, "output.weight") == nullptr;
  config["dtype"] = "bfloat16";
  const GgufTensor* embed = find(header, "token_embd.weight");
  if (!embed) fail_load("{}: the tensor \"token_embd.weight\" is missing", where);
  config["vocab_size"] = embed->shape.front();
  if (arch->complete) arch->complete(config, file);
  if (!config.contains("qk_rope_head_dim")) check_rope_width(config, file);
  if (!config.contains("rope_scaling"))
    config["rope_scaling"] = rope_scaling(metadata, prefix, where);
  const bool biased = find(header, "blk.0.attn_q.bias") != nullptr;
  config["attention_bias"] = biased;
  add_tokens(config, metadata);
  add_sampling(config, metadata);
  return config;
}

std::string types_of_gguf(const GgufHeader& header) {
  struct Share {
    std::string_view type;
    size_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::vector<Share> shares;
  for (const GgufTensor& tensor : header.tensors) {
    auto share = std::ranges::find(shares, tensor.type, &Share::type);
    if (share == shares.end()) share = shares.insert(share, {.type = tensor.type});
    ++share->tensors;
    share->bytes += tensor.end - tensor.begin;
  }
  std::ranges::stable_sort(shares, std::greater<>(), &Share::bytes);
  std::vector<std::string> texts;
  texts.reserve(shares.size());
  for (const Share& share : shares)
    texts.push_back(fmt::format("{} ({} tensors)", share.type, share.tensors));
  return name_list(texts);
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
