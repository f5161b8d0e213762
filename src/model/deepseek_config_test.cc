// config.json of DeepSeek's families: what is read, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/config.h"
#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestModel;

const Json kYarn = {
    {"type", "yarn"},       {"factor", 40},   {"original_max_position_embeddings", 4096},
    {"beta_fast", 32},      {"beta_slow", 1}, {"mscale", 1.0},
    {"mscale_all_dim", 1.0}};

Json config_of(const std::string& arch, const Json& changes) {
  Json config = {{"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128},
                 {"q_lora_rank", 1536},
                 {"n_routed_experts", 64},
                 {"num_experts_per_tok", 4},
                 {"n_shared_experts", 2},
                 {"moe_intermediate_size", 6},
                 {"num_hidden_layers", 5},
                 {"n_group", 8},
                 {"topk_group", 3},
                 {"architectures", {arch}}};
  config.update(changes);
  return config;
}
ModelSpec spec_of(const std::string& arch, const Json& changes = Json::object()) {
  return TestModel(arch, config_of(arch, changes)).config().spec;
}
ModelSpec v3(const Json& changes = Json::object()) {
  return spec_of("DeepseekV3ForCausalLM", changes);
}
ModelSpec v2(const Json& changes = Json::object()) {
  return spec_of("DeepseekV2ForCausalLM", changes);
}
std::string refusal(const std::string& arch, const Json& changes) {
  try {
    spec_of(arch, changes);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}
std::string v3_refusal(const Json& changes) { return refusal("DeepseekV3ForCausalLM", changes); }
std::string v2_refusal(const Json& changes) { return refusal("DeepseekV2ForCausalLM", changes); }

const Mla& mla(const ModelSpec& spec) { return std::get<Mla>(spec.layers.at(0).mixer); }
const Moe& last_moe(const ModelSpec& spec) { return std::get<Moe>(spec.layers.back().ffn); }

TEST(DeepseekConfig, LatentAttention) {
  const Mla m = mla(v3());
  EXPECT_EQ(m.heads, 4);
  EXPECT_EQ(m.q_rank, 1536);
  EXPECT_EQ(m.kv_rank, 512);
  EXPECT_EQ(m.q_dim(), 192);
  EXPECT_EQ(m.v_dim, 128);
  EXPECT_TRUE(m.rope.interleaved);
  EXPECT_EQ(m.rope.dim, 64);
  EXPECT_EQ(m.rope.theta, 1e4f);
  EXPECT_FLOAT_EQ(m.scale, 0.0721688f);
  EXPECT_EQ(mla(v3({{"q_lora_rank", nullptr}})).q_rank, 0);
  EXPECT_FALSE(mla(v3({{"rope_interleave", false}})).rope.interleaved);
}

// The context is the one after scaling, and the published scales are these.
TEST(DeepseekConfig, YarnScalesTheScoresByItsSecondMscale) {
  const ModelSpec spec = v3({{"rope_scaling", kYarn}, {"max_position_embeddings", 163840}});
  EXPECT_EQ(spec.max_context, 163840);
  EXPECT_NEAR(mla(spec).scale, 0.135234, 1e-6);
  const auto yarn = std::get<YarnScaling>(mla(spec).rope.scaling);
  EXPECT_EQ(yarn, (YarnScaling{.factor = 40, .original_ctx = 4096, .attention_factor = 1}));
  Json lite = kYarn;
  lite["mscale"] = lite["mscale_all_dim"] = 0.707;
  EXPECT_NEAR(mla(v2({{"rope_scaling", lite}})).scale, 0.114721, 1e-6);
}

TEST(DeepseekConfig, CosinesAreScaledByTheRatioOfBothMscales) {
  const auto gain = [](const Json& changes) {
    Json rope = {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 32}};
    rope.update(changes);
    const ModelSpec spec = v3({{"rope_parameters", rope}});
    return std::pair(rope_gain(mla(spec).rope), mla(spec).scale * std::sqrt(192.0f));
  };
  const double log = std::log(8.0);
  const auto both = gain({{"mscale", 0.7}, {"mscale_all_dim", 1.3}});
  EXPECT_NEAR(both.first, (0.07 * log + 1) / (0.13 * log + 1), 1e-6);
  EXPECT_NEAR(both.second, std::pow(0.13 * log + 1, 2), 1e-6);
  const auto neither = gain(Json::object());
  EXPECT_NEAR(neither.first, 0.1 * log + 1, 1e-6);
  EXPECT_NEAR(neither.second, 1, 1e-6);
  EXPECT_NEAR(gain({{"attention_factor", 0.5}}).first, 0.5, 1e-6);
}

TEST(DeepseekConfig, Routers) {
  const Router third = last_moe(v3()).router;
  EXPECT_EQ(third.score, Router::kSigmoid);
  EXPECT_EQ(third.groups.count, 8);
  EXPECT_EQ(third.groups.keep, 3);
  EXPECT_EQ(third.groups.judge, ExpertGroups::kTwoBest);
  EXPECT_TRUE(third.bias && third.renorm);
  EXPECT_EQ(third.factor, 2.5f);
  const Router second =
      last_moe(v2({{"topk_method", "group_limited_greedy"}, {"routed_scaling_factor", 16.0}}))
          .router;
  EXPECT_EQ(second.score, Router::kSoftmax);
  EXPECT_EQ(second.groups.keep, 3);
  EXPECT_EQ(second.groups.judge, ExpertGroups::kBest);
  EXPECT_FALSE(second.bias || second.renorm);
  EXPECT_EQ(second.factor, 16);
  EXPECT_EQ(last_moe(v2()).router.groups.count, 1) << "greedy knows no groups";
  EXPECT_EQ(last_moe(v2({{"n_group", nullptr}})).router.groups.count, 1);
}

TEST(DeepseekConfig, ExpertsBeginBehindTheDenseLayers) {
  const auto kinds = [](const ModelSpec& spec) {
    std::string out;
    for (const Layer& layer : spec.layers)
      out += std::holds_alternative<Moe>(layer.ffn) ? 'm' : 'd';
    return out;
  };
  EXPECT_EQ(kinds(v3()), "dddmm");
  EXPECT_EQ(kinds(v3({{"first_k_dense_replace", 1}})), "dmmmm");
  EXPECT_EQ(kinds(v3({{"first_k_dense_replace", 1}, {"moe_layer_freq", 2}})), "ddmdm");
  EXPECT_EQ(kinds(v2()), "mmmmm");
  EXPECT_EQ(kinds(v2({{"n_routed_experts", nullptr}})), "ddddd");
  EXPECT_EQ(last_moe(v3()).router.always, 2);
  EXPECT_EQ(last_moe(v3({{"n_shared_experts", nullptr}})).router.always, 0);
}

TEST(DeepseekConfig, TheFirstMoeHasLlamasAttention) {
  const ModelSpec spec =
      spec_of("DeepseekForCausalLM", {{"norm_topk_prob", true}, {"first_k_dense_replace", 1}});
  const auto& m = std::get<Gqa>(spec.layers[0].mixer);
  EXPECT_FALSE(m.rope.interleaved);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_TRUE(last_moe(spec).router.renorm);
  EXPECT_EQ(last_moe(spec).router.groups.count, 1);
  EXPECT_EQ(last_moe(spec).router.factor, 1);
  EXPECT_EQ(spec.extra_layers, 0);
}

TEST(DeepseekConfig, LayersThatPredictFurtherTokensAreKnown) {
  EXPECT_EQ(v3().extra_layers, 1);
  EXPECT_EQ(v3({{"num_nextn_predict_layers", 3}}).extra_layers, 3);
  EXPECT_EQ(v2().extra_layers, 0);
}

TEST(DeepseekConfig, RefusalsNameTheKey) {
  EXPECT_THAT(v3_refusal({{"attention_bias", true}}), HasSubstr("\"attention_bias\""));
  EXPECT_THAT(v3_refusal({{"scoring_func", "softmax"}}),
              HasSubstr("\"scoring_func\" \"softmax\" is not supported; known: sigmoid"));
  EXPECT_THAT(v3_refusal({{"topk_method", "greedy"}}), HasSubstr("known: noaux_tc"));
  EXPECT_THAT(v2_refusal({{"topk_method", "noaux_tc"}}), HasSubstr("known: greedy, group"));
  EXPECT_THAT(v2_refusal({{"norm_topk_prob", true}}), HasSubstr("\"norm_topk_prob\""));
  EXPECT_THAT(v3_refusal({{"n_group", 7}}), HasSubstr("not a multiple of \"n_group\" 7"));
  EXPECT_THAT(v3_refusal({{"topk_group", 9}}), HasSubstr("\"topk_group\" is 9"));
  EXPECT_THAT(v3_refusal({{"num_experts_per_tok", 30}}), HasSubstr("more than the 24 experts"));
  EXPECT_THAT(v3_refusal({{"qk_rope_head_dim", 63}}), HasSubstr("\"qk_rope_head_dim\" 63 is odd"));
  EXPECT_THAT(v3_refusal({{"kv_lora_rank", nullptr}}), HasSubstr("missing key \"kv_lora_rank\""));
  EXPECT_THAT(v3_refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
              AllOf(HasSubstr("linear"), HasSubstr("yarn")));
  Json rope = kYarn;
  rope["beta_fast"] = 0.5;
  EXPECT_THAT(v3_refusal({{"rope_scaling", rope}}), HasSubstr("\"beta_fast\" 0.5"));
  rope = kYarn;
  rope["truncate"] = false;
  EXPECT_THAT(v3_refusal({{"rope_scaling", rope}}), HasSubstr("\"truncate\""));
}

}  // namespace
}  // namespace skiff::model
