#include "model/families/deepseek.h"

#include <cmath>

#include "base/log.h"

namespace skiff::model {
namespace {

// By how much attention grows with the logarithm of a context that is `factor` times as long.
double growth(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

struct ScaledRope {
  Rope rope;
  double growth = 1;  // the factor of queries, and that of keys
};

constexpr double kMaxMscale = 1e3;

YarnScaling read_yarn(const Fields& rope, int max_context) {
  YarnScaling yarn{.factor = need_rope_number(rope, "factor"),
                   .beta_fast = static_cast<float>(get_number(rope, "beta_fast", 32, 1e-3, 1e6)),
                   .beta_slow = static_cast<float>(get_number(rope, "beta_slow", 1, 1e-3, 1e6)),
                   .original_ctx = get_int(rope, "original_max_position_embeddings", max_context, 1,
                                           kMaxContext)};
  if (yarn.beta_fast < yarn.beta_slow)
    fail_load("{}: \"beta_fast\" {} must not be below \"beta_slow\" {}", rope.where(),
              yarn.beta_fast, yarn.beta_slow);
  if (!rope.get<bool>("truncate", true))
    fail_load("{}: \"truncate\" false is not supported", rope.where());
  return yarn;
}

// Reads YaRN with its two factors of magnitude, those of mscale and of mscale_all_dim. Cosines and
// sines are multiplied by their ratio, scores by the square of the second. Where mscale_all_dim is
// absent or 0, as transformers reads it, cosines and sines are multiplied and scores are not.
ScaledRope read_scaled_rope(const Fields& config, int max_context) {
  const Fields fields = rope_fields(config);
  ScaledRope out;
  out.rope = {.theta = 1e4f,
              .dim = need_int(config, "qk_rope_head_dim", 2, kMaxHeadDim),
              .interleaved = config.get<bool>("rope_interleave", true)};
  if (out.rope.dim % 2)
    fail_load("{}: \"qk_rope_head_dim\" {} is odd", config.where(), out.rope.dim);
  for (const Fields* holder : {&config, &fields})
    if (holder->has("rope_theta")) out.rope.theta = need_rope_number(*holder, "rope_theta");
  const auto type =
      fields.get<std::string>("rope_type", fields.get<std::string>("type", "default"));
  if (type == "default") return out;
  if (type != "yarn")
    fail_load(
        "{}: \"rope_type\" \"{}\" is not supported with latent attention; known: default, "
        "yarn",
        fields.where(), escaped(type));
  if (out.rope.theta <= 1)
    fail_load("{}: \"rope_theta\" {} must be above 1 with yarn", config.where(), out.rope.theta);
  YarnScaling yarn = read_yarn(fields, max_context);
  const double mscale = get_number(fields, "mscale", 0, 0, kMaxMscale);
  const double all_dim = get_number(fields, "mscale_all_dim", 0, 0, kMaxMscale);
  const bool both = mscale > 0 && all_dim > 0;
  const double ratio =
      both ? growth(yarn.factor, mscale) / growth(yarn.factor, all_dim) : growth(yarn.factor, 1);
  yarn.attention_factor =
      static_cast<float>(get_number(fields, "attention_factor", ratio, 1e-3, 1e3));
  out.rope.scaling = yarn;
  if (all_dim > 0) out.growth = growth(yarn.factor, all_dim);
  return out;
}

}  // namespace

Mla read_mla(const Fields& config, int max_context) {
  if (config.get<bool>("attention_bias", false))
    fail_load("{}: \"attention_bias\" true is not supported with latent attention", config.where());
  constexpr std::string_view kQRank = "q_lora_rank";  // null: queries have no low-rank vector
  if (!config.json().contains(kQRank)) fail_load("{}: missing key \"{}\"", config.where(), kQRank);
  const ScaledRope scaled = read_scaled_rope(config, max_context);
  Mla m{.heads = need_int(config, "num_attention_heads", 1, kMaxHeads),
        .q_rank = get_int(config, kQRank, 0, 0, kMaxWidth),
        .kv_rank = need_int(config, "kv_lora_rank", 1, kMaxWidth),
        .nope_dim = need_int(config, "qk_nope_head_dim", 1, kMaxHeadDim),
        .rope_dim = scaled.rope.dim,
        .v_dim = need_int(config, "v_head_dim", 1, kMaxHeadDim),
        .rope = scaled.rope};
  m.scale = static_cast<float>(scaled.growth * scaled.growth / std::sqrt(m.q_dim()));
  return m;
}

std::optional<Moe> read_experts(const Fields& config) {
  constexpr std::string_view kKey = "n_routed_experts";
  if (!config.has(kKey) && config.json().contains(kKey)) return std::nullopt;
  Moe moe{.width = need_int(config, "moe_intermediate_size", 1, kMaxWidth)};
  moe.router.experts = need_int(config, kKey, 1, kMaxExperts);
  moe.router.top_k = need_int(config, "num_experts_per_tok", 1, moe.router.experts);
  moe.router.always = get_int(config, "n_shared_experts", 0, 0, kMaxWidth / moe.width);
  return moe;
}

void place_experts(ModelSpec& spec, const Fields& config, const Moe& moe, int first_dense) {
  const int first = get_int(config, "first_k_dense_replace", first_dense, 0, kMaxLayers);
  const int step = get_int(config, "moe_layer_freq", 1, 1, kMaxLayers);
  for (int i = first; i < std::ssize(spec.layers); ++i)
    if (i % step == 0) spec.layers[static_cast<size_t>(i)].ffn = moe;
}

ExpertGroups read_groups(const Fields& config, const Router& router, ExpertGroups::Judge judge) {
  ExpertGroups groups{.count = need_int(config, "n_group", 1, router.experts), .judge = judge};
  groups.keep = need_int(config, "topk_group", 1, groups.count);
  if (router.experts % groups.count)
    fail_load("{}: \"n_routed_experts\" {} is not a multiple of \"n_group\" {}", config.where(),
              router.experts, groups.count);
  const int left = router.experts / groups.count * groups.keep;
  if (router.top_k > left)
    fail_load("{}: \"num_experts_per_tok\" {} is more than the {} experts of \"topk_group\" {}",
              config.where(), router.top_k, left, groups.keep);
  return groups;
}

void expect_word(const Fields& config, std::string_view key, std::string_view only) {
  const auto word = config.get<std::string>(key, std::string(only));
  if (word != only)
    fail_load("{}: \"{}\" \"{}\" is not supported; known: {}", config.where(), key, escaped(word),
              only);
}

std::vector<NameRule> deepseek_names() {
  std::vector<NameRule> rules = hf_names();
  rules.insert(rules.end(),
               {
                   {"q_kv_latent",
                    "model.layers.{}.self_attn.q_a_proj|model.layers.{}.self_attn.kv_a_proj_with_"
                    "mqa"},
                   {"kv_latent", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
                   {"q_latent_norm", "model.layers.{}.self_attn.q_a_layernorm"},
                   {"kv_latent_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
                   {"q", "model.layers.{}.self_attn.q_b_proj"},
                   {"q", "model.layers.{}.self_attn.q_proj"},
                   {"kv_up", "model.layers.{}.self_attn.kv_b_proj"},
                   {"router_bias", "model.layers.{}.mlp.gate.e_score_correction_bias"},
                   {"q_kv_latent", "blk.{}.attn_q_a|blk.{}.attn_kv_a_mqa", Layout::kGguf},
                   {"kv_latent", "blk.{}.attn_kv_a_mqa", Layout::kGguf},
                   {"q_latent_norm", "blk.{}.attn_q_a_norm", Layout::kGguf},
                   {"kv_latent_norm", "blk.{}.attn_kv_a_norm", Layout::kGguf},
                   {"q", "blk.{}.attn_q_b", Layout::kGguf},
                   {"q", "blk.{}.attn_q", Layout::kGguf},
                   {"absorb", "blk.{}.attn_k_b", Layout::kGguf},
                   {"value", "blk.{}.attn_v_b", Layout::kGguf},
                   {"kv_up", "blk.{}.attn_kv_b", Layout::kGguf},
               });
  return rules;
}

}  // namespace skiff::model
