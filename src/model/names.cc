#include "model/names.h"

namespace skiff::model {
namespace {

constexpr std::string_view kBase = "model.";

constexpr NameRule kTorch[] = {
    {"embed", "model.embed_tokens"},
    {"norm", "model.norm"},
    {"head", "lm_head"},
    {"score", "score"},
    {"score_inner", "score.0"},
    {"score", "score.2"},
    {"mixer_norm", "model.layers.{}.input_layernorm"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"q_norm", "model.layers.{}.self_attn.q_norm"},
    {"k_norm", "model.layers.{}.self_attn.k_norm"},
    {"qkv",
     "model.layers.{}.self_attn.q_proj|model.layers.{}.self_attn.k_proj|model.layers.{}.self_attn."
     "v_proj"},
    {"out", "model.layers.{}.self_attn.o_proj"},
    {"gate_up", "model.layers.{}.mlp.gate_proj|model.layers.{}.mlp.up_proj"},
    {"gate_up",
     "model.layers.{}.mlp.shared_experts.gate_proj|model.layers.{}.mlp.shared_experts.up_proj"},
    {"down", "model.layers.{}.mlp.down_proj"},
    {"down", "model.layers.{}.mlp.shared_experts.down_proj"},
    {"router", "model.layers.{}.mlp.gate"},
    {"router_bias", "model.layers.{}.mlp.moe_statics.e_score_correction_bias"},
    {"router_bias", "model.layers.{}.mlp.gate.moe_statics.e_score_correction_bias"},
    {"expert_gate_up",
     "model.layers.{}.mlp.experts.{}.gate_proj|model.layers.{}.mlp.experts.{}.up_proj"},
    {"expert_gate_up", "model.layers.{}.mlp.experts.gate_up_proj"},
    {"expert_down", "model.layers.{}.mlp.experts.{}.down_proj"},
    {"expert_down", "model.layers.{}.mlp.experts.down_proj"},
};

// Paddle fuses projections, has a prefix of its own and stores every linear weight as [in, out].
constexpr NameRule kPaddle[] = {
    {"embed", "ernie.embed_tokens", Layout::kPaddle},
    {"norm", "ernie.norm", Layout::kPaddle},
    {"head", "lm_head", Layout::kPaddle},
    {"mixer_norm", "ernie.layers.{}.input_layernorm", Layout::kPaddle},
    {"ffn_norm", "ernie.layers.{}.post_attention_layernorm", Layout::kPaddle},
    {"qkv", "ernie.layers.{}.self_attn.qkv_proj", Layout::kPaddle},
    {"out", "ernie.layers.{}.self_attn.o_proj", Layout::kPaddle},
    {"gate_up", "ernie.layers.{}.mlp.up_gate_proj", Layout::kPaddle},
    {"gate_up", "ernie.layers.{}.mlp.shared_experts.up_gate_proj", Layout::kPaddle},
    {"down", "ernie.layers.{}.mlp.down_proj", Layout::kPaddle},
    {"down", "ernie.layers.{}.mlp.shared_experts.down_proj", Layout::kPaddle},
    {"router", "ernie.layers.{}.mlp.gate", Layout::kPaddle},
    {"router_bias", "ernie.layers.{}.mlp.moe_statics.e_score_correction_bias", Layout::kPaddle},
    {"expert_gate_up", "ernie.layers.{}.mlp.experts.{}.up_gate_proj", Layout::kPaddle},
    {"expert_down", "ernie.layers.{}.mlp.experts.{}.down_proj", Layout::kPaddle},
};

// PaddleNLP names a model's tensors as torch does, behind the name of the model's class, and stores
// every linear weight as [in, out].
constexpr std::string_view kPaddleNlpBases[] = {"llama.", "qwen2."};

constexpr NameRule kGguf[] = {
    {"embed", "token_embd", Layout::kGguf},
    {"norm", "output_norm", Layout::kGguf},
    {"head", "output", Layout::kGguf},
    {"mixer_norm", "blk.{}.attn_norm", Layout::kGguf},
    {"ffn_norm", "blk.{}.ffn_norm", Layout::kGguf},
    {"q_norm", "blk.{}.attn_q_norm", Layout::kGguf},
    {"k_norm", "blk.{}.attn_k_norm", Layout::kGguf},
    {"qkv", "blk.{}.attn_q|blk.{}.attn_k|blk.{}.attn_v", Layout::kGguf},
    {"out", "blk.{}.attn_output", Layout::kGguf},
    {"gate_up", "blk.{}.ffn_gate|blk.{}.ffn_up", Layout::kGguf},
    {"gate_up", "blk.{}.ffn_gate_shexp|blk.{}.ffn_up_shexp", Layout::kGguf},
    {"down", "blk.{}.ffn_down", Layout::kGguf},
    {"down", "blk.{}.ffn_down_shexp", Layout::kGguf},
    {"router", "blk.{}.ffn_gate_inp", Layout::kGguf},
    {"router_bias", "blk.{}.exp_probs_b.bias", Layout::kGguf},
    {"router_bias", "blk.{}.exp_probs_b", Layout::kGguf},
    {"expert_gate_up", "blk.{}.ffn_gate_exps|blk.{}.ffn_up_exps", Layout::kGguf},
    {"expert_down", "blk.{}.ffn_down_exps", Layout::kGguf},
    // Older files have a tensor for each expert.
    {"expert_gate_up", "blk.{}.ffn_gate.{}|blk.{}.ffn_up.{}", Layout::kGguf},
    {"expert_down", "blk.{}.ffn_down.{}", Layout::kGguf},
};

// Adds the rules of torch's names with another base; those that have none only in another layout.
void add_under(std::vector<NameRule>& rules, std::string_view base, Layout layout) {
  for (NameRule rule : kTorch) {
    if (layout == Layout::kTorch && !rule.pattern.starts_with(kBase)) continue;
    rule.base = base;
    rule.layout = layout;
    rules.push_back(rule);
  }
}

}  // namespace

std::string stored_pattern(const NameRule& rule, std::string_view pattern) {
  if (!pattern.starts_with(kBase)) return std::string(pattern);
  pattern.remove_prefix(kBase.size());
  return std::string(rule.base).append(pattern);
}

std::vector<NameRule> hf_names() {
  std::vector<NameRule> rules(std::begin(kTorch), std::end(kTorch));
  add_under(rules, "", Layout::kTorch);
  rules.insert(rules.end(), std::begin(kPaddle), std::end(kPaddle));
  for (const std::string_view base : kPaddleNlpBases) add_under(rules, base, Layout::kPaddle);
  rules.insert(rules.end(), std::begin(kGguf), std::end(kGguf));
  return rules;
}

}  // namespace skiff::model
