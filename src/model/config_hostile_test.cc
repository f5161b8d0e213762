// Every key of config.json with values that nobody means: each is refused in one line, or gives a
// model whose logits are finite and the same on both host backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/model_testing.h"
#include "model/registry.h"
#include "model/single.h"

namespace skiff::model {
namespace {

using testing::TestModel;

const char* const kKeys[] = {"hidden_size",
                             "intermediate_size",
                             "num_hidden_layers",
                             "num_attention_heads",
                             "num_key_value_heads",
                             "head_dim",
                             "vocab_size",
                             "max_position_embeddings",
                             "rms_norm_eps",
                             "hidden_act",
                             "rope_theta",
                             "rope_scaling",
                             "rope_parameters",
                             "partial_rotary_factor",
                             "original_max_position_embeddings",
                             "sliding_window",
                             "use_sliding_window",
                             "max_window_layers",
                             "layer_types",
                             "tie_word_embeddings",
                             "attention_bias",
                             "mlp_bias",
                             "use_bias",
                             "num_local_experts",
                             "num_experts",
                             "num_experts_per_tok",
                             "norm_topk_prob",
                             "decoder_sparse_step",
                             "mlp_only_layers",
                             "moe_intermediate_size",
                             "use_moe",
                             "moe_num_experts",
                             "moe_k",
                             "moe_num_shared_experts",
                             "moe_layer_start_index",
                             "moe_layer_end_index",
                             "moe_layer_interval",
                             "moe_norm_min",
                             "n_routed_experts",
                             "n_shared_experts",
                             "first_k_dense_replace",
                             "moe_layer_freq",
                             "n_group",
                             "topk_group",
                             "topk_method",
                             "scoring_func",
                             "routed_scaling_factor",
                             "q_lora_rank",
                             "kv_lora_rank",
                             "qk_nope_head_dim",
                             "qk_rope_head_dim",
                             "v_head_dim",
                             "num_nextn_predict_layers",
                             "rope_interleave",
                             "architectures",
                             "dtype",
                             "torch_dtype",
                             "eos_token_id",
                             "bos_token_id",
                             "do_sample",
                             "temperature",
                             "top_p",
                             "top_k",
                             "min_p",
                             "repetition_penalty",
                             "max_new_tokens",
                             "quantization_config"};

const char* const kRopeKeys[] = {"rope_type",        "type",
                                 "factor",           "low_freq_factor",
                                 "high_freq_factor", "original_max_position_embeddings",
                                 "rope_theta",       "partial_rotary_factor",
                                 "beta_fast",        "beta_slow",
                                 "mscale",           "mscale_all_dim",
                                 "attention_factor", "truncate"};

const char* const kValues[] = {"0",
                               "-1",
                               "1",
                               "2",
                               "3",
                               "5",
                               "17",
                               "2147483647",
                               "2147483648",
                               "-2147483649",
                               "9223372036854775807",
                               "9223372036854775808",
                               "18446744073709551615",
                               "1e308",
                               "-1e308",
                               "1e-308",
                               "0.5",
                               "1.0",
                               "1e12",
                               "\"NaN\"",
                               "\"1\"",
                               "\"\"",
                               "true",
                               "false",
                               "null",
                               "[]",
                               "{}",
                               "[1]",
                               "[-1]",
                               "[1e308]",
                               "[18446744073709551615]",
                               "[\"sliding_attention\"]"};

// One that uses as many of the keys as its family knows.
Json base_config(std::string_view arch) {
  Json config = {{"architectures", {arch}},
                 {"hidden_size", 8},
                 {"intermediate_size", 6},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 4},
                 {"vocab_size", 19},
                 {"max_position_embeddings", 64},
                 {"use_sliding_window", true},
                 {"sliding_window", 2},
                 {"max_window_layers", 1},
                 {"moe_intermediate_size", 3},
                 {"num_experts_per_tok", 2},
                 {"moe_k", 2},
                 {"moe_num_experts", 3},
                 {"n_routed_experts", 4},
                 {"n_shared_experts", 1},
                 {"first_k_dense_replace", 1},
                 {"n_group", 2},
                 {"topk_group", 1},
                 {"q_lora_rank", 5},
                 {"kv_lora_rank", 6},
                 {"qk_nope_head_dim", 3},
                 {"qk_rope_head_dim", 2},
                 {"v_head_dim", 4}};
  config[arch.starts_with("Mixtral") ? "num_local_experts" : "num_experts"] = 3;
  return config;
}

struct MixerShape {
  std::string operator()(const Gqa& m) const {
    return fmt::format("{} {} {} {} {} {} {}: ", m.heads, m.kv_heads, m.head_dim, m.window,
                       m.qkv_bias, m.out_bias, m.qk_norm);
  }
  std::string operator()(const Mla& m) const {
    return fmt::format("{} {} {} {} {} {}: ", m.heads, m.q_rank, m.kv_rank, m.nope_dim, m.rope_dim,
                       m.v_dim);
  }
};

const Rope& rope_of(const Layer& layer) {
  return std::visit([](const auto& mixer) -> const Rope& { return mixer.rope; }, layer.mixer);
}

// What decides the shapes of a model, so that each shape runs once.
std::string shape_of(const ModelSpec& spec) {
  std::string out = fmt::format("{} {} {} {} {} ", spec.hidden, spec.vocab, spec.eps,
                                spec.tied_head, std::min(spec.max_context, 3));
  for (const Layer& layer : spec.layers) {
    out += std::visit(MixerShape{}, layer.mixer);
    if (const auto* dense = std::get_if<Dense>(&layer.ffn)) {
      out += fmt::format("dense {} {} ", dense->width, dense->bias);
    } else {
      const auto& moe = std::get<Moe>(layer.ffn);
      const Router& r = moe.router;
      out += fmt::format("moe {} {} {} {} {} {} {} {} {} ", moe.width, moe.shared_width, r.experts,
                         r.top_k, r.renorm, r.bias, r.always, r.groups.count, r.groups.keep);
    }
  }
  return out;
}

std::vector<float> logits_of(const ModelConfig& config, Ops& ops, int tokens) {
  const LoadedModel model =
      load_model("", config, {.format = LoadFormat::kDummy, .progress = {}, .threads = 1}, ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(model, ops, mesh, DType::kF32, tokens, tokens);
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(tokens));
  for (int i = 0; i < tokens; ++i) ids.push_back(i % config.spec.vocab);
  const Tensor logits = sequence.forward(ids);
  return {logits.as<float>(), logits.as<float>() + logits.elements()};
}

class Trial {
 public:
  void expect_refused_or_sound(const Json& config) {
    SCOPED_TRACE(config.dump());
    model_.write("config.json", config.dump());
    try {
      expect_sound(model_.config());
    } catch (const LoadError& e) {
      ++refused_;
      EXPECT_GT(std::string_view(e.what()).size(), 10u);
      EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    }
  }
  int refused() const { return refused_; }
  int accepted() const { return accepted_; }

 private:
  void expect_sound(const ModelConfig& config) {
    ++accepted_;
    for (const int32_t eos : config.generation.eos) EXPECT_GE(eos, 0);
    for (const Layer& layer : config.spec.layers)
      for (const float speed : rope_frequencies(rope_of(layer)))
        ASSERT_TRUE(std::isfinite(speed * static_cast<float>(config.spec.max_context))) << speed;
    ASSERT_LE(config.spec.vocab * config.spec.layers.size(), 4000u) << "too large to try";
    if (!seen_.insert(shape_of(config.spec)).second) return;
    const int tokens = std::min(config.spec.max_context, 3);
    const std::vector<float> want = logits_of(config, *reference_, tokens);
    const std::vector<float> got = logits_of(config, *cpu_, tokens);
    float largest = 0;
    for (const float x : want) {
      ASSERT_TRUE(std::isfinite(x));
      largest = std::max(largest, std::abs(x));
    }
    ASSERT_EQ(got.size(), want.size());
    // Dot products of at most 17 terms over at most 17 layers: roundings of 2^-24 come to less than
    // 2^-24 * 20 * 8 * 17, which a norm over few small values may enlarge tenfold.
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-3f * largest) << i;
  }

  TestModel model_{"LlamaForCausalLM"};
  std::unique_ptr<Ops> reference_ = make_reference_ops(), cpu_ = make_cpu_ops(1);
  std::set<std::string> seen_;
  int refused_ = 0, accepted_ = 0;
};

class HostileConfigTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(HostileConfigTest, IsRefusedInALineOrComputes) {
  const Json base = base_config(GetParam());
  Trial trial;
  for (const char* key : kKeys) {
    for (const char* value : kValues) {
      Json config = base;
      config[key] = Json::parse(value);
      trial.expect_refused_or_sound(config);
    }
    Json config = base;
    config.erase(key);
    trial.expect_refused_or_sound(config);
  }
  EXPECT_GT(trial.accepted(), 200);
  EXPECT_GT(trial.refused(), 500);
}

// Families with the same attention share the code that reads rope.
TEST(HostileRopeTest, IsRefusedInALineOrComputes) {
  Trial trial;
  const Json yarn = {
      {"type", "yarn"},      {"factor", 4.0}, {"original_max_position_embeddings", 16},
      {"mscale_all_dim", 1}, {"mscale", 0.7}, {"beta_fast", 32}};
  const Json scaled[] = {yarn,
                         {{"rope_type", "linear"}, {"factor", 2.0}},
                         {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 32}}};
  for (const Json& rope : scaled)
    for (const char* holder : {"rope_scaling", "rope_parameters"})
      for (const char* key : kRopeKeys)
        for (const char* value : kValues) {
          Json config = base_config(rope == yarn ? "DeepseekV3ForCausalLM" : "LlamaForCausalLM");
          config[holder] = rope;
          config[holder][key] = Json::parse(value);
          trial.expect_refused_or_sound(config);
        }
  EXPECT_GT(trial.accepted(), 20);
  EXPECT_GT(trial.refused(), 200);
}

// Architectures that read config.json in the same way are tried once.
std::vector<std::string_view> distinct_families() {
  std::vector<std::string_view> names;
  std::set<ModelSpec (*)(const Fields&)> seen;
  for (const std::string_view name : known_architectures())
    if (seen.insert(find_family(name)->describe).second) names.push_back(name);
  return names;
}

std::string arch_name(const ::testing::TestParamInfo<std::string_view>& info) {
  return std::string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, HostileConfigTest, ::testing::ValuesIn(distinct_families()),
                         arch_name);

}  // namespace
}  // namespace skiff::model
