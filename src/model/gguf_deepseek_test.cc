// DeepSeek's models as GGUF files: they compute what the same weights in safetensors do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/shard.h"
#include "model/gguf_models_testing.h"
#include "model/slot_cut.h"
#include "model/values.h"

namespace skiff::model {
namespace {

using testing::Both;
using testing::gguf_layer;
using testing::GgufFileTensor;
using ::testing::HasSubstr;
using testing::kExperts;
using testing::kHeads;
using testing::kHidden;
using testing::kLayers;
using testing::kWidth;
using testing::metadata_of;
using testing::sizes;
using testing::TestModel;
using testing::torch_layer;
using testing::TwoForms;
using testing::WholeMatrix;

// A dense layer, then one with experts and a shared one.
void add_deepseek_blocks(TwoForms& w, bool corrected) {
  testing::add_gated(w, torch_layer(0) + "mlp.", gguf_layer(0), "", testing::kDense);
  const std::string torch = torch_layer(1) + "mlp.", gguf = gguf_layer(1);
  w.both(torch + "gate", gguf + "ffn_gate_inp", kExperts, kHidden);
  if (corrected)
    w.vector(torch + "gate.e_score_correction_bias", gguf + "exp_probs_b.bias", kExperts, 0);
  testing::add_experts(w, torch, gguf, false);
  testing::add_gated(w, torch + "shared_experts.", gguf, "_shexp", kWidth);
}

Json expert_sizes() {
  return {{"n_routed_experts", kExperts}, {"num_experts_per_tok", 2},    {"n_shared_experts", 1},
          {"first_k_dense_replace", 1},   {"moe_intermediate_size", 32}, {"norm_topk_prob", false}};
}

const Json kExpertKeys = {{"expert_shared_count", 1u},
                          {"leading_dense_block_count", 1u},
                          {"expert_feed_forward_length", 32u}};

TEST(GgufModel, DeepseekV1KeepsTheWeightsOfItsExperts) {
  Both model{.arch = "DeepseekForCausalLM",
             .config = sizes(),
             .metadata = metadata_of("deepseek", kExpertKeys),
             .weights = {}};
  model.config.update(expert_sizes());
  model.metadata["deepseek.expert_weights_scale"] = 1.0;
  model.metadata["deepseek.rope.scaling.type"] = "none";
  testing::add_outside(model.weights);
  for (int i = 0; i < kLayers; ++i) testing::add_attention(model.weights, i);
  add_deepseek_blocks(model.weights, false);
  model.expect_same();
  model.metadata["deepseek.expert_weights_scale"] = 2.0;
  EXPECT_THAT(model.refusal(), HasSubstr("\"deepseek.expert_weights_scale\""));
}

constexpr int kRank = 32, kNope = 32, kRope = 8, kV = 32;

// Latent attention, whose kv_b is whole in files from before llama.cpp split it.
void add_latent(TwoForms& w, int layer, bool low_rank_q, bool split) {
  const std::string torch = torch_layer(layer) + "self_attn.", gguf = gguf_layer(layer);
  const int64_t q = int64_t{kHeads} * (kNope + kRope);
  if (low_rank_q) {
    w.both(torch + "q_a_proj", gguf + "attn_q_a", kRank, kHidden);
    w.vector(torch + "q_a_layernorm.weight", gguf + "attn_q_a_norm.weight", kRank);
    w.both(torch + "q_b_proj", gguf + "attn_q_b", q, kRank);
  } else {
    w.both(torch + "q_proj", gguf + "attn_q", q, kHidden);
  }
  w.both(torch + "kv_a_proj_with_mqa", gguf + "attn_kv_a_mqa", kRank + kRope, kHidden);
  w.vector(torch + "kv_a_layernorm.weight", gguf + "attn_kv_a_norm.weight", kRank);
  w.both(torch + "o_proj", gguf + "attn_output", kHidden, int64_t{kHeads} * kV);
  const WholeMatrix kv = w.random(int64_t{kHeads} * (kNope + kV), kRank);
  w.torch(torch + "kv_b_proj", kv);
  if (!split) return w.gguf(gguf + "attn_kv_b", kv);
  WholeMatrix keys, values;
  for (int64_t h = 0; h < kHeads; ++h) {
    const int64_t first = h * (kNope + kV);
    keys.append(kv.picked(kNope, [&](int64_t r) { return first + r; }).transposed());
    values.append(kv.picked(kV, [&](int64_t r) { return first + kNope + r; }));
  }
  w.gguf(gguf + "attn_k_b", keys, kHeads);
  w.gguf(gguf + "attn_v_b", values, kHeads);
}

Json latent_sizes(bool low_rank_q) {
  return {{"q_lora_rank", low_rank_q ? Json(kRank) : Json(nullptr)},
          {"kv_lora_rank", kRank},
          {"qk_nope_head_dim", kNope},
          {"qk_rope_head_dim", kRope},
          {"v_head_dim", kV}};
}

Json latent_keys(bool low_rank_q, bool split) {
  Json keys = {{"attention.kv_lora_rank", 32u}, {"rope.dimension_count", 8u}};
  if (low_rank_q) keys["attention.q_lora_rank"] = 32u;
  if (split)
    keys.update({{"attention.head_count_kv", 1u},
                 {"attention.key_length", 40u},
                 {"attention.value_length", 32u},
                 {"attention.key_length_mla", 40u},
                 {"attention.value_length_mla", 32u}});
  else
    keys.update({{"attention.head_count_kv", 4u},
                 {"attention.key_length", 40u},
                 {"attention.value_length", 32u}});
  return keys;
}

Json yarn(double mscale) {
  return {{"type", "yarn"},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32},
          {"mscale", mscale},
          {"mscale_all_dim", mscale},
          {"beta_fast", 32},
          {"beta_slow", 1}};
}

Json yarn_keys(double log_multiplier) {
  return {{"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", 4.0},
          {"rope.scaling.original_context_length", 32u},
          {"rope.scaling.yarn_log_multiplier", log_multiplier}};
}

Both deepseek2(const std::string& arch, bool low_rank_q, bool split) {
  Both model{.arch = arch, .config = sizes(), .metadata = {}, .weights = {}};
  Json keys = kExpertKeys;
  keys.update(latent_keys(low_rank_q, split));
  const bool v3 = arch == "DeepseekV3ForCausalLM";
  keys.update(yarn_keys(v3 ? 0.1 : 0.0707));
  model.config.update(expert_sizes());
  model.config.update(latent_sizes(low_rank_q));
  model.config["rope_scaling"] = yarn(v3 ? 1.0 : 0.707);
  model.metadata = metadata_of("deepseek2", keys);
  testing::add_outside(model.weights);
  for (int i = 0; i < kLayers; ++i) add_latent(model.weights, i, low_rank_q, split);
  add_deepseek_blocks(model.weights, v3);
  return model;
}

// Sets keys of both forms.
void set(Both& model, const Json& config, const Json& keys) {
  model.config.update(config);
  for (const auto& [key, value] : keys.items()) model.metadata["deepseek2." + key] = value;
}

Both deepseek_v3(bool split) {
  Both model = deepseek2("DeepseekV3ForCausalLM", true, split);
  set(model,
      {{"n_group", 2}, {"topk_group", 1}, {"routed_scaling_factor", 2.5}, {"norm_topk_prob", true}},
      {{"expert_gating_func", 2u},
       {"expert_weights_norm", true},
       {"expert_weights_scale", 2.5},
       {"expert_group_count", 2u},
       {"expert_group_used_count", 1u}});
  return model;
}

TEST(GgufModel, DeepseekV3HasTheHalvesOfItsHeads) { deepseek_v3(true).expect_same(); }
TEST(GgufModel, DeepseekV3MayHaveThemWhole) { deepseek_v3(false).expect_same(); }

// Every slot that a rank of two reads, as floats.
std::vector<std::string> slots_of_rank(const std::string& path, int rank) {
  const ModelConfig config = read_model_config(path);
  const RankOf at{rank, 2};
  const std::vector<Slot> slots = slots_of(*shard(config.spec, at.rank, at.size), at.size);
  const std::vector<SlotCut> cuts = cut_slots(config.spec, slots, at);
  const auto values = stored_values(path, config, slots, DType::kF32, cuts);
  std::vector<std::string> all;
  for (size_t i = 0; i < slots.size(); ++i) {
    all.emplace_back(static_cast<size_t>(slots[i].elements()) * bytes(values->dtype(i)), '\0');
    values->fill(i, 0, slots[i].elements() / slots[i].in,
                 reinterpret_cast<std::byte*>(all.back().data()));
  }
  return all;
}

TEST(GgufModel, RanksReadTheSamePartsOfDeepseekV3) {
  Both model = deepseek_v3(true);
  const TestModel torch(model.arch, model.config), gguf(model.arch);
  torch.write("model.safetensors", testing::safetensors_bytes(model.weights.torch_tensors()));
  gguf.write("model.gguf", testing::gguf_bytes(model.metadata, model.weights.gguf_tensors(false)));
  for (const int rank : {0, 1})
    EXPECT_EQ(slots_of_rank(gguf.dir() + "/model.gguf", rank), slots_of_rank(torch.dir(), rank));
}

// V2-Lite: queries without a latent, all experts in one group, no function named.
TEST(GgufModel, DeepseekV2LiteIsReadOldAndNew) {
  for (const bool split : {false, true}) {
    Both model = deepseek2("DeepseekV2ForCausalLM", false, split);
    set(model, {{"topk_method", "greedy"}, {"routed_scaling_factor", 1.0}},
        {{"expert_weights_scale", 1.0}});
    model.expect_same();
  }
}

TEST(GgufModel, DeepseekV2HasGroups) {
  Both model = deepseek2("DeepseekV2ForCausalLM", true, true);
  set(model,
      {{"topk_method", "group_limited_greedy"},
       {"n_group", 4},
       {"topk_group", 2},
       {"routed_scaling_factor", 16.0}},
      {{"expert_gating_func", 1u},
       {"expert_weights_scale", 16.0},
       {"expert_group_count", 4u},
       {"expert_group_used_count", 2u}});
  model.expect_same();
}

TEST(GgufModel, KeysOfLatentAttentionAreChecked) {
  const std::pair<const char*, Json> wrong[] = {
      {"rope.dimension_count", 0u},
      {"rope.dimension_count", 1e30},
      {"attention.key_length_mla", 8u},
      {"attention.key_length_mla", "forty"},
      {"expert_gating_func", 3u},
      {"rope.scaling.type", "longrope"},
      {"rope.scaling.yarn_log_multiplier", 0.0},
      {"rope.scaling.attn_factor", 0.5},
  };
  for (const auto& [key, value] : wrong) {
    Both model = deepseek_v3(true);
    set(model, Json::object(), {{key, value}});
    EXPECT_THAT(model.refusal(), HasSubstr("\"deepseek2." + std::string(key) + "\""));
  }
}

// What is neither whole nor in halves is named.
TEST(GgufModel, HeadsThatAreMissingAreNamed) {
  Both model = deepseek_v3(true);
  auto& tensors = model.weights.gguf_tensors(false);
  std::erase_if(tensors, [](const GgufFileTensor& t) { return t.name == "blk.1.attn_v_b.weight"; });
  EXPECT_THAT(model.refusal(), HasSubstr("blk.1.attn_"));
}

}  // namespace
}  // namespace skiff::model
