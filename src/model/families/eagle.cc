// Heads of EAGLE and EAGLE 3 (model/eagle.h): decoder layers of Llama's form behind what joins
// embedding and hidden row, whatever the family of the model that they draft for.
#include "model/family.h"

namespace skiff::model {
namespace {

// Attention and feed-forward block as in Llama; heads for Qwen2 have biases of q, k and v.
ModelSpec describe_layers(const Fields& config, ModelSpec::Join join) {
  ModelSpec spec = llama_like(config, {.max_context = 2048});
  const bool bias =
      config.get<bool>("attention_bias", false) || config.get<bool>("qkv_bias", false);
  for_each_gqa(spec, [bias](Gqa& m) { m.qkv_bias = bias; });
  spec.joins = true;
  spec.join = join;
  spec.tied_head = false;
  return spec;
}

ModelSpec describe(const Fields& config) { return describe_layers(config, ModelSpec::kPlain); }

// There is one layer, whatever the configuration says: some have the served model's number.
ModelSpec describe_third(const Fields& config) {
  ModelSpec spec = describe_layers(config, ModelSpec::kBeside);
  spec.layers.resize(1);
  spec.draft_vocab = config.has("draft_vocab_size")
                         ? need_int(config, "draft_vocab_size", 1, spec.vocab)
                         : spec.vocab;
  const Fields options = config.child("eagle_config");
  if (!options.get<bool>("use_aux_hidden_state", true))
    fail_load("{}: \"use_aux_hidden_state\" false is not supported", config.where());
  if (config.get<bool>("norm_before_residual", false))
    fail_load("{}: \"norm_before_residual\" true is not supported", config.where());
  return spec;
}

// With the prefix "model." and without it.
std::vector<NameRule> with_bare(std::span<const NameRule> rules) {
  std::vector<NameRule> all(rules.begin(), rules.end());
  for (NameRule rule : rules) {
    rule.base = "";
    all.push_back(rule);
  }
  return all;
}

constexpr NameRule kNames[] = {
    {"join", "model.fc"},
    {"mixer_norm", "model.layers.{}.input_layernorm"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"qkv",
     "model.layers.{}.self_attn.q_proj|model.layers.{}.self_attn.k_proj|model.layers.{}.self_attn."
     "v_proj"},
    {"out", "model.layers.{}.self_attn.o_proj"},
    {"gate_up", "model.layers.{}.mlp.gate_proj|model.layers.{}.mlp.up_proj"},
    {"down", "model.layers.{}.mlp.down_proj"},
};

constexpr NameRule kThirdNames[] = {
    {"join", "model.fc"},
    {"token_norm", "model.midlayer.input_layernorm"},
    {"token_norm", "model.layers.0.input_layernorm"},
    {"hidden_norm", "model.midlayer.hidden_norm"},
    {"hidden_norm", "model.layers.0.hidden_norm"},
    {"ffn_norm", "model.midlayer.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"qkv",
     "model.midlayer.self_attn.q_proj|model.midlayer.self_attn.k_proj|model.midlayer.self_attn."
     "v_proj"},
    {"qkv",
     "model.layers.{}.self_attn.q_proj|model.layers.{}.self_attn.k_proj|model.layers.{}.self_attn."
     "v_proj"},
    {"out", "model.midlayer.self_attn.o_proj"},
    {"out", "model.layers.{}.self_attn.o_proj"},
    {"gate_up", "model.midlayer.mlp.gate_proj|model.midlayer.mlp.up_proj"},
    {"gate_up", "model.layers.{}.mlp.gate_proj|model.layers.{}.mlp.up_proj"},
    {"down", "model.midlayer.mlp.down_proj"},
    {"down", "model.layers.{}.mlp.down_proj"},
    {"norm", "model.norm"},
    {"head", "lm_head"},
};

std::vector<NameRule> names() { return with_bare(kNames); }
std::vector<NameRule> names_of_third() { return with_bare(kThirdNames); }

}  // namespace

extern const Family kEagle{"EagleForCausalLM", describe, names};
extern const Family kEagle3{"Eagle3ForCausalLM", describe_third, names_of_third};

}  // namespace skiff::model
