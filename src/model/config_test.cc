// config.json in all its spellings, and what we refuse.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include "model/memory_plan.h"
#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestModel;

const Gqa& gqa(const ModelSpec& spec, size_t layer = 0) {
  return std::get<Gqa>(spec.layers.at(layer).mixer);
}

ModelSpec spec_of(const Json& changes, const char* arch = "LlamaForCausalLM") {
  return TestModel(arch, changes).config().spec;
}
std::string refusal(const Json& changes, const char* arch = "LlamaForCausalLM") {
  try {
    spec_of(changes, arch);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

// Published configurations: the file under data/configs and its parameters in billions (qwen2-72b
// there has the sizes of Qwen1.5-72B).
struct Published {
  const char* path;
  double billions;
};
class PublishedConfigTest : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedConfigTest, HasTheKnownSize) {
  const std::filesystem::path path =
      std::filesystem::path(SKIFF_SHARED_DIR) / "data/configs" / GetParam().path;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data at " << path;
  const ModelConfig config =
      read_model_config(path.parent_path().string(), path.filename().string());
  EXPECT_NEAR(static_cast<double>(parameter_count(config.spec)) * 1e-9, GetParam().billions,
              GetParam().billions * 0.004);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedConfigTest,
    ::testing::ValuesIn({Published{"vendored/Llama-2-7b.json", 6.738},
                         Published{"vendored/Llama-2-70b.json", 68.98},
                         Published{"vendored/Llama-3.1-8B.json", 8.030},
                         Published{"vendored/Llama-3.1-70B.json", 70.55},
                         Published{"vendored/Llama-3.2-1B.json", 1.236},
                         Published{"verbatim/llama-3-8b/config.json", 8.030},
                         Published{"verbatim/llama-3-70b/config.json", 70.55},
                         Published{"vendored/Mistral-7B.json", 7.242},
                         Published{"vendored/Mistral-7B-v0.3.json", 7.248},
                         Published{"vendored/Mixtral-8x7B-v0.1.json", 46.70},
                         Published{"vendored/Qwen1.5-or-2.json", 1.526},
                         Published{"vendored/Qwen2-0.5B.json", 0.494},
                         Published{"vendored/Qwen2-1.5B.json", 1.544},
                         Published{"vendored/Qwen2-7B.json", 7.616},
                         Published{"vendored/Qwen2.5-3B.json", 3.086},
                         Published{"reconstructed/Qwen2.5-7B.json", 7.616},
                         Published{"verbatim/qwen2-7b/config.json", 7.616},
                         Published{"verbatim/qwen2-72b/config.json", 72.29},
                         Published{"vendored/Qwen3-0.6B.json", 0.596},
                         Published{"verbatim/qwen3-1.7b/config.json", 1.721},
                         Published{"verbatim/qwen3-8b/config.json", 8.191},
                         Published{"verbatim/qwen3-30b/config.json", 30.53},
                         Published{"verbatim/qwen3-235b/config.json", 235.1},
                         Published{"verbatim/ERNIE-4.5-0.3B-Base/config.json", 0.361},
                         Published{"reconstructed/ERNIE-4.5-21B-A3B-PT.json", 21.83},
                         Published{"reconstructed/ERNIE-4.5-300B-A47B-PT.json", 299.5},
                         Published{"vendored/DeepSeek-V1-MoE.json", 16.38},
                         Published{"verbatim/DeepSeek-V2-Lite/config.json", 15.71},
                         Published{"verbatim/deepseek-r1/config.json", 671.0}}));

TEST(Config, PublishedConfigsThatWeDoNotRunAreRefused) {
  const std::string dir = std::string(SKIFF_SHARED_DIR) + "/data/configs";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no reference data at " << dir;
  const auto why = [&](const std::string& sub, const std::string& file) -> std::string {
    try {
      read_model_config(dir + sub, file);
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  };
  // It describes what FastDeploy does to plain weights at load; --quantization says so here.
  EXPECT_EQ(why("/verbatim", "ERNIE-4.5-21B-A3B.fastdeploy-test.config.json"), "accepted");
  EXPECT_THAT(why("/vendored", "Qwen1.5-MoE-A2.7B.json"),
              AllOf(HasSubstr("Qwen2MoeForCausalLM"), HasSubstr("nearest: Qwen")));
  EXPECT_THAT(why("/reconstructed", "ERNIE-4.5-VL-28B-A3B-PT.json"), HasSubstr("not supported"));
}

TEST(Config, RopeInOldAndNewSpelling) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 2.0},
                       {"high_freq_factor", 8.0},
                       {"original_max_position_embeddings", 99}};
  Json with_theta = llama3;
  with_theta["rope_theta"] = 12345.0;
  const ModelSpec old = spec_of({{"rope_theta", 12345.0}, {"rope_scaling", llama3}});
  const ModelSpec now = spec_of({{"rope_parameters", with_theta}});
  EXPECT_EQ(gqa(old).rope, gqa(now).rope);
  EXPECT_EQ(gqa(old).rope.theta, 12345.0f);
  EXPECT_EQ(std::get<Llama3Scaling>(gqa(now).rope.scaling),
            (Llama3Scaling{.factor = 4, .low_factor = 2, .high_factor = 8, .original_ctx = 99}));
  const ModelSpec linear = spec_of({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  EXPECT_EQ(std::get<LinearScaling>(gqa(linear).rope.scaling).factor, 2.5f);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(
      gqa(spec_of({{"rope_scaling", nullptr}})).rope.scaling));
}

TEST(Config, RefusesWhatItCannotRun) {
  EXPECT_THAT(refusal({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}),
              AllOf(HasSubstr("rope_type"), HasSubstr("yarn")));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}}}),
              HasSubstr("dynamic"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(refusal({{"rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}}}),
              HasSubstr("full_attention"));
  EXPECT_THAT(refusal({{"hidden_act", "gelu"}}), AllOf(HasSubstr("hidden_act"), HasSubstr("gelu")));
  EXPECT_THAT(refusal({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
  EXPECT_THAT(refusal({}, "LlamaForCasualLM"),
              AllOf(HasSubstr("nearest: LlamaForCausalLM"), HasSubstr("MixtralForCausalLM")));
  EXPECT_THAT(
      refusal({{"use_bias", true}, {"moe_intermediate_size", 8}}, "Ernie4_5_MoeForCausalLM"),
      HasSubstr("use_bias"));
}

TEST(Config, SizesAreBounded) {
  for (const char* key :
       {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "max_position_embeddings", "head_dim", "num_key_value_heads"}) {
    for (const Json& value : {Json(0), Json(-5), Json(int64_t{1} << 40), Json(UINT64_MAX),
                              Json(2.5), Json("8"), Json::array()})
      EXPECT_THAT(refusal({{key, value}}), HasSubstr(key)) << value;
  }
  EXPECT_THAT(refusal({{"hidden_size", nullptr}}), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal({{"num_attention_heads", 4}, {"num_key_value_heads", 3}}),
              HasSubstr("multiple"));
  EXPECT_THAT(refusal({{"num_attention_heads", 3}, {"num_key_value_heads", 1}}),
              HasSubstr("head_dim"));
  EXPECT_THAT(refusal({{"head_dim", 7}}), HasSubstr("odd"));
  EXPECT_THAT(refusal({{"rms_norm_eps", 2}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refusal({{"rope_theta", -1}}), HasSubstr("rope_theta"));
  EXPECT_THAT(refusal({{"num_experts_per_tok", 9}, {"num_local_experts", 8}}, "MixtralForCausalLM"),
              HasSubstr("num_experts_per_tok"));
}

TEST(Config, MistralWindows) {
  EXPECT_EQ(gqa(spec_of({}, "MistralForCausalLM")).window, 4096);
  EXPECT_EQ(gqa(spec_of({{"sliding_window", nullptr}}, "MistralForCausalLM")).window, 0);
  EXPECT_EQ(gqa(spec_of({{"sliding_window", 7}}, "MistralForCausalLM")).window, 7);
}

TEST(Config, QwenWindows) {
  const Json on = {{"use_sliding_window", true}, {"sliding_window", 9}, {"num_hidden_layers", 3}};
  const auto windows = [&](Json changes) {
    changes.update(on, false);
    Json all = on;
    all.update(changes);
    std::vector<int> out;
    const ModelSpec spec = spec_of(all, "Qwen2ForCausalLM");
    for (size_t i = 0; i < spec.layers.size(); ++i) out.push_back(gqa(spec, i).window);
    return out;
  };
  EXPECT_THAT(windows({{"max_window_layers", 2}}), ElementsAre(0, 0, 9));
  EXPECT_THAT(windows({}), ElementsAre(0, 0, 0));
  EXPECT_THAT(
      windows({{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}),
      ElementsAre(9, 0, 9));
  EXPECT_THAT(refusal({{"use_sliding_window", true},
                       {"sliding_window", 9},
                       {"layer_types", {"full_attention"}}},
                      "Qwen2ForCausalLM"),
              HasSubstr("layer_types"));
}

TEST(Config, ErnieMoeLayers) {
  const auto moe_layers = [](Json changes) {
    changes["moe_intermediate_size"] = 8;
    changes["num_hidden_layers"] = 6;
    std::vector<size_t> out;
    const ModelSpec spec = spec_of(changes, "Ernie4_5_MoeForCausalLM");
    for (size_t i = 0; i < spec.layers.size(); ++i)
      if (std::holds_alternative<Moe>(spec.layers[i].ffn)) out.push_back(i);
    return out;
  };
  EXPECT_THAT(moe_layers({}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(moe_layers({{"moe_layer_end_index", 3}, {"moe_layer_start_index", 2}}),
              ElementsAre(2, 3));
  EXPECT_THAT(moe_layers({{"moe_layer_interval", 3}}), ElementsAre(2, 5));
  EXPECT_THAT(moe_layers({{"use_moe", false}}), ElementsAre());
}

TEST(Config, ErniesSharedExpertsAreAlwaysOn) {
  const ModelSpec spec = spec_of({{"moe_intermediate_size", 8},
                                  {"moe_num_shared_experts", 3},
                                  {"moe_k", 2},
                                  {"num_hidden_layers", 2}},
                                 "Ernie4_5_MoeForCausalLM");
  const auto& moe = std::get<Moe>(spec.layers.back().ffn);
  EXPECT_EQ(moe.router.always, 3);
  EXPECT_EQ(moe.router.per_token(), 5);
  EXPECT_EQ(moe.shared_width, 0);
}

TEST(Config, GenerationDefaults) {
  TestModel model("LlamaForCausalLM",
                  {{"eos_token_id", 5}, {"bos_token_id", nullptr}, {"torch_dtype", "float16"}});
  EXPECT_THAT(model.config().generation.eos, ElementsAre(5));
  EXPECT_EQ(model.config().generation.bos, -1);
  EXPECT_EQ(model.config().generation.max_new_tokens, 0);
  EXPECT_EQ(model.config().generation.min_p, 0);
  EXPECT_EQ(model.config().dtype, "float16");
  model.write(
      "generation_config.json",
      R"({"eos_token_id":[7,9],"bos_token_id":3,"temperature":0.6,"top_p":0.9,"top_k":20,"do_sample":false,"repetition_penalty":1.1,"min_p":0.05,"max_new_tokens":77})");
  const GenerationDefaults generation = model.config().generation;
  EXPECT_THAT(generation.eos, ElementsAre(7, 9, 5)) << "config.json names one more";
  EXPECT_EQ(generation.bos, 3);
  EXPECT_FALSE(generation.do_sample);
  EXPECT_FLOAT_EQ(generation.temperature, 0.6f);
  EXPECT_FLOAT_EQ(generation.top_p, 0.9f);
  EXPECT_EQ(generation.top_k, 20);
  EXPECT_FLOAT_EQ(generation.repetition, 1.1f);
  EXPECT_FLOAT_EQ(generation.min_p, 0.05f);
  EXPECT_EQ(generation.max_new_tokens, 77);
  model.write("generation_config.json", R"({"temperature":"warm"})");
  EXPECT_THROW(model.config(), LoadError);
}

// Where there is a generation_config.json, config.json names tokens only.
TEST(Config, SamplingOfConfigJsonIsForWantOfAnotherFile) {
  TestModel model("LlamaForCausalLM",
                  {{"eos_token_id", 5}, {"repetition_penalty", 3}, {"top_k", 1}});
  EXPECT_EQ(model.config().generation.repetition, 3);
  EXPECT_EQ(model.config().generation.top_k, 1);
  model.write("generation_config.json", R"({"eos_token_id":7,"temperature":0.6})");
  const GenerationDefaults generation = model.config().generation;
  EXPECT_EQ(generation.repetition, 1);
  EXPECT_EQ(generation.top_k, 0);
  EXPECT_FLOAT_EQ(generation.temperature, 0.6f);
  EXPECT_THAT(generation.eos, ElementsAre(7, 5));
}

}  // namespace
}  // namespace skiff::model
