// What each family assumes where config.json does not have a key: the defaults of the configuration
// classes of Hugging Face transformers 5.23 (models/*/configuration_*.py).
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestModel;

constexpr int kHidden = 1024, kHeads = 32, kLayers = 30;

struct Silent {
  const char* arch;
  int max_context, kv_heads, head_dim;
  double theta, eps;
  bool tied;
  int window;  // the first layer's
  int experts = 0, top_k = 0, first_moe = 0, always = 0;
  bool renorm = false;
};
void PrintTo(const Silent& family, std::ostream* to) { *to << family.arch; }

constexpr Silent kFamilies[] = {
    {"LlamaForCausalLM", 2048, kHeads, 32, 1e4, 1e-6, false, 0},
    {"MistralForCausalLM", 131072, 8, 32, 1e4, 1e-6, false, 4096},
    {"MixtralForCausalLM", 131072, 8, 32, 1e6, 1e-5, false, 0, 8, 2, 0, 0, true},
    {"Qwen2ForCausalLM", 32768, 32, 32, 1e4, 1e-6, false, 0},
    {"Qwen3ForCausalLM", 32768, 32, 128, 1e4, 1e-6, false, 0},
    {"Qwen3MoeForCausalLM", 32768, 4, 32, 1e4, 1e-6, false, 0, 128, 8, 0, 0, false},
    {"Ernie4_5ForCausalLM", 131072, 2, 128, 5e5, 1e-5, true, 0},
    {"Ernie4_5_ForCausalLM", 131072, 2, 128, 5e5, 1e-5, true, 0},
    {"Ernie4_5_MoeForCausalLM", 131072, 4, 32, 5e5, 1e-5, true, 0, 64, 6, 1, 2, true},
};

// Only what has no default is said.
Json smallest(const char* arch) {
  Json config = {{"architectures", {arch}},       {"hidden_size", kHidden},
                 {"intermediate_size", 64},       {"num_hidden_layers", kLayers},
                 {"num_attention_heads", kHeads}, {"vocab_size", 40}};
  if (std::string_view(arch).find("Moe") != std::string_view::npos)
    config["moe_intermediate_size"] = 16;
  return config;
}

ModelSpec spec_of(Json config, const Json& changes = Json::object()) {
  for (const auto& [key, value] : changes.items()) config[key] = value;
  const TestModel model("", {});
  model.write("config.json", config.dump());
  return model.config().spec;
}

std::string refusal(const Json& config, const Json& changes) {
  try {
    spec_of(config, changes);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

std::vector<int> windows(const ModelSpec& spec) {
  std::vector<int> out;
  out.reserve(spec.layers.size());
  for (const Layer& layer : spec.layers) out.push_back(std::get<Gqa>(layer.mixer).window);
  return out;
}

class SilentConfigTest : public ::testing::TestWithParam<Silent> {};

TEST_P(SilentConfigTest, MeansWhatTransformersAssumes) {
  const Silent& want = GetParam();
  const ModelSpec spec = spec_of(smallest(want.arch));
  const auto& m = std::get<Gqa>(spec.layers[0].mixer);
  EXPECT_EQ(spec.max_context, want.max_context);
  EXPECT_EQ(m.kv_heads, want.kv_heads);
  EXPECT_EQ(m.head_dim, want.head_dim);
  EXPECT_EQ(m.rope.theta, static_cast<float>(want.theta));
  EXPECT_EQ(spec.eps, static_cast<float>(want.eps));
  EXPECT_EQ(spec.tied_head, want.tied);
  EXPECT_EQ(m.window, want.window);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(m.rope.scaling));
  for (int i = 0; i < kLayers; ++i) {
    const auto* moe = std::get_if<Moe>(&spec.layers[static_cast<size_t>(i)].ffn);
    ASSERT_EQ(moe != nullptr, want.experts > 0 && i >= want.first_moe) << i;
    if (!moe) continue;
    EXPECT_EQ(moe->router.experts, want.experts);
    EXPECT_EQ(moe->router.top_k, want.top_k);
    EXPECT_EQ(moe->router.always, want.always);
    EXPECT_EQ(moe->router.renorm, want.renorm);
  }
}

// A null is not silence: transformers then takes as many key heads as heads, and divides the
// hidden size for the size of a head.
TEST_P(SilentConfigTest, NullIsNotSilence) {
  const ModelSpec spec =
      spec_of(smallest(GetParam().arch), {{"num_key_value_heads", nullptr}, {"head_dim", nullptr}});
  const auto& m = std::get<Gqa>(spec.layers[0].mixer);
  EXPECT_EQ(m.kv_heads, kHeads);
  EXPECT_EQ(m.head_dim, kHidden / kHeads);
}

INSTANTIATE_TEST_SUITE_P(All, SilentConfigTest, ::testing::ValuesIn(kFamilies));

TEST(ConfigDefaults, ADefaultThatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal(smallest("MistralForCausalLM"), {{"num_attention_heads", 4}}),
              HasSubstr("\"num_key_value_heads\" is missing, and the family's default 8"));
  EXPECT_THAT(refusal(smallest("MixtralForCausalLM"), {{"num_local_experts", 1}}),
              HasSubstr("\"num_experts_per_tok\" is missing, and the family's default 2"));
  EXPECT_THAT(refusal(smallest("Qwen3MoeForCausalLM"), {{"num_experts", 7}}),
              HasSubstr("\"num_experts_per_tok\""));
  EXPECT_THAT(refusal(smallest("Ernie4_5_MoeForCausalLM"), {{"moe_num_experts", 5}}),
              HasSubstr("\"moe_k\""));
}

TEST(ConfigDefaults, QwensWindow) {
  const Json on = {{"use_sliding_window", true}};
  for (const char* arch : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    std::vector<int> upper(28, 0);
    upper.insert(upper.end(), 2, 4096);
    EXPECT_EQ(windows(spec_of(smallest(arch), on)), upper) << arch;
    EXPECT_EQ(windows(spec_of(smallest(arch),
                              {{"use_sliding_window", true}, {"sliding_window", nullptr}})),
              std::vector<int>(kLayers, 0))
        << arch;
    EXPECT_THAT(windows(spec_of(smallest(arch), {{"use_sliding_window", true},
                                                 {"num_hidden_layers", 3},
                                                 {"max_window_layers", 1}})),
                ElementsAre(0, 4096, 4096))
        << arch;
    EXPECT_EQ(windows(spec_of(smallest(arch), {{"sliding_window", 7}, {"max_window_layers", 0}})),
              std::vector<int>(kLayers, 0))
        << arch;
  }
}

TEST(ConfigDefaults, Qwen3MoesWindowIsOnEveryLayer) {
  const Json base = smallest("Qwen3MoeForCausalLM");
  const std::vector<int> all(kLayers, 4096);
  EXPECT_EQ(windows(spec_of(base, {{"use_sliding_window", true}})), all);
  EXPECT_EQ(windows(spec_of(base, {{"use_sliding_window", true}, {"max_window_layers", 28}})), all);
}

}  // namespace
}  // namespace skiff::model
