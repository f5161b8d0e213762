// ERNIE 4.5's module that predicts the token after the next (MTP): one dense decoder layer behind a
// projection of embedding and hidden row. The served model's last norm ends it.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec =
      llama_like(config, {.max_context = 131072, .kv_heads = 4, .rope_theta = 5e5, .eps = 1e-5});
  if (config.get<bool>("use_bias", false))
    fail_load("{}: \"use_bias\" true is not supported with MTP", config.where());
  for_each_gqa(spec, [](Gqa& m) { m.rope.interleaved = true; });
  spec.layers.resize(1);
  spec.joins = true;
  return spec;
}

constexpr NameRule kNames[] = {
    {"token_norm", "model.mtp_emb_norm.0"},
    {"hidden_norm", "model.mtp_hidden_norm.0"},
    {"join", "model.mtp_linear_proj.0"},
    {"mixer_norm", "model.mtp_block.{}.input_layernorm"},
    {"ffn_norm", "model.mtp_block.{}.post_attention_layernorm"},
    {"qkv",
     "model.mtp_block.{}.self_attn.q_proj|model.mtp_block.{}.self_attn.k_proj|model.mtp_block.{}."
     "self_attn.v_proj"},
    {"out", "model.mtp_block.{}.self_attn.o_proj"},
    {"gate_up", "model.mtp_block.{}.mlp.gate_proj|model.mtp_block.{}.mlp.up_proj"},
    {"down", "model.mtp_block.{}.mlp.down_proj"},
    {"token_norm", "ernie.mtp_emb_norm.0", Layout::kPaddle},
    {"hidden_norm", "ernie.mtp_hidden_norm.0", Layout::kPaddle},
    {"join", "ernie.mtp_linear_proj.0", Layout::kPaddle},
    {"mixer_norm", "ernie.mtp_block.{}.input_layernorm", Layout::kPaddle},
    {"ffn_norm", "ernie.mtp_block.{}.post_attention_layernorm", Layout::kPaddle},
    {"qkv", "ernie.mtp_block.{}.self_attn.qkv_proj", Layout::kPaddle},
    {"out", "ernie.mtp_block.{}.self_attn.o_proj", Layout::kPaddle},
    {"gate_up", "ernie.mtp_block.{}.mlp.up_gate_proj", Layout::kPaddle},
    {"down", "ernie.mtp_block.{}.mlp.down_proj", Layout::kPaddle},
};

std::vector<NameRule> names() { return {std::begin(kNames), std::end(kNames)}; }

}  // namespace

extern const Family kErnie45Mtp{"Ernie4_5_MTPForCausalLM", describe, names};

}  // namespace skiff::model
