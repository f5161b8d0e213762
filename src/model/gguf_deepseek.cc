#include "model/gguf_deepseek.h"

#include <cmath>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::model {
namespace {

constexpr const char* kType = "rope.scaling.type";
constexpr const char* kLogMultiplier = "rope.scaling.yarn_log_multiplier";
constexpr int kSoftmax = 1, kSigmoid = 2;  // values of expert_gating_func

// Files with kv_b in halves have the sizes of heads under keys of their own, because key_length is
// then the size of a cached row.
void add_head_sizes(Json& config, const GgufKeys& keys) {
  const bool halves = !keys.find("attention.key_length_mla").is_null();
  const char* key = halves ? "attention.key_length_mla" : "attention.key_length";
  const char* value = halves ? "attention.value_length_mla" : "attention.value_length";
  const int64_t rope = keys.size("rope.dimension_count"), whole = keys.size(key);
  if (whole <= rope)
    keys.refuse(
        key, fmt::format("is {}; it must be more than \"rope.dimension_count\", {}", whole, rope));
  config.erase("head_dim");
  config["qk_rope_head_dim"] = rope;
  config["qk_nope_head_dim"] = whole - rope;
  config["v_head_dim"] = keys.size(value);
  config["kv_lora_rank"] = keys.size("attention.kv_lora_rank");
  config["q_lora_rank"] = keys.find("attention.q_lora_rank");
}

// Writers store a tenth of mscale_all_dim, in float32, and leave mscale out: it is the same number
// in all published models.
Json yarn(const GgufKeys& keys) {
  const double tenth = keys.number(kLogMultiplier, 0);
  if (tenth <= 0)
    keys.refuse(kLogMultiplier, "must be there beside yarn; use the safetensors checkpoint");
  keys.need("rope.scaling.factor");
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"})
    if (keys.number(key, 1) != 1) keys.refuse(key, "is not supported other than 1");
  const double mscale = std::round(tenth * 1e7) / 1e6;
  Json scaling = {{"type", "yarn"},
                  {"factor", keys.find("rope.scaling.factor")},
                  {"mscale", mscale},
                  {"mscale_all_dim", mscale},
                  {"beta_fast", keys.number("rope.scaling.yarn_beta_fast", 32)},
                  {"beta_slow", keys.number("rope.scaling.yarn_beta_slow", 1)}};
  if (const Json context = keys.find("rope.scaling.original_context_length"); !context.is_null())
    scaling["original_max_position_embeddings"] = context;
  return scaling;
}

// Without a function, files are older than V3 and mean softmax. Groups are judged by their best
// expert with softmax and by their two best with sigmoid. A file without keys for groups has none.
void add_router(Json& config, const GgufKeys& keys) {
  const double gate = keys.number("expert_gating_func", kSoftmax);
  if (gate != kSoftmax && gate != kSigmoid && gate != 0)
    keys.refuse("expert_gating_func", fmt::format("is {}; known: 1 (softmax), 2 (sigmoid)", gate));
  const bool v3 = gate == kSigmoid;
  if (v3) config["architectures"] = {"DeepseekV3ForCausalLM"};
  const double groups = keys.number("expert_group_count", 1);
  config["n_group"] = groups > 1 ? keys.size("expert_group_count") : 1;
  config["topk_group"] = groups > 1 ? keys.size("expert_group_used_count") : 1;
  if (!v3) config["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  const Json norm = keys.find("expert_weights_norm");
  config["norm_topk_prob"] = norm.is_null() ? Json(false) : norm;
  const double factor = keys.number("expert_weights_scale", 1);
  config["routed_scaling_factor"] = factor == 0 ? 1 : factor;  // 0 stands for none
}

}  // namespace

void GgufKeys::refuse(const char* key, const std::string& why) const {
  fail_load("{}: \"{}{}\" {}", where, prefix, key, why);
}

double GgufKeys::number(const char* key, double fallback) const {
  const Json value = find(key);
  if (value.is_null()) return fallback;
  if (!value.is_number()) refuse(key, fmt::format("is {}, no number", escaped(value.dump(), 40)));
  return value.get<double>();
}

int64_t GgufKeys::size(const char* key) const {
  constexpr int64_t kMost = 1 << 20;
  const Json value = find(key);
  if (value.is_null()) refuse(key, kMissing);
  const int64_t size = value.is_number_integer() ? value.get<int64_t>() : 0;
  if (size < 1 || size > kMost)
    refuse(key, fmt::format("is {}; it must be an integer from 1 to {}", escaped(value.dump(), 40),
                            kMost));
  return size;
}

void complete_deepseek(Json& config, const GgufKeys& keys) {
  config["norm_topk_prob"] = false;
  if (keys.number("expert_weights_scale", 1) != 1)
    keys.refuse("expert_weights_scale", "is not supported other than 1");
}

void complete_deepseek2(Json& config, const GgufKeys& keys) {
  add_head_sizes(config, keys);
  // GGUF files of this architecture leave out the layers that predict further tokens (MTP).
  config["num_nextn_predict_layers"] = 0;
  if (config.value("num_experts", Json(0)) == Json(0))
    config["n_routed_experts"] = nullptr;
  else
    add_router(config, keys);
  const Json type = keys.find(kType);
  if (type == Json("yarn"))
    config["rope_scaling"] = yarn(keys);
  else if (!type.is_null() && type != Json("none") && type != Json("linear"))
    keys.refuse(kType, fmt::format("{} is not supported with latent attention; known: none, yarn",
                                   escaped(type.dump(), 60)));
}

}  // namespace skiff::model
