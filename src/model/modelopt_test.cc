// What ModelOpt's descriptions say beyond one algorithm for all layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/model_testing.h"
#include "model/quantized_testing.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::Mutation;

constexpr const char* kAccepted = "accepted";
const std::string kLayer = "model.layers.0.";

Json mixed(const Json& layers) {
  return {{"quant_method", "modelopt"},
          {"quant_algo", "MIXED_PRECISION"},
          {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}},
          {"quantized_layers", layers},
          {"ignore", {"lm_head", "mtp*"}}};
}
Json algorithm(const char* name) { return {{"quant_algo", name}}; }

// A layer's entry counts for what it names or for all that is in it.
TEST(ModelOptMixed, SaysTheAlgorithmOfEachLayer) {
  Mutation one("modelopt_fp8");
  const std::vector<float> same = one.logits();
  one.quantization() = mixed({{kLayer + "self_attn", algorithm("FP8")},
                              {kLayer + "mlp.gate_proj", algorithm("FP8")},
                              {kLayer + "mlp.up_proj", algorithm("FP8")},
                              {kLayer + "mlp.down_proj", algorithm("FP8")}});
  EXPECT_EQ(one.refusal(), kAccepted);
  EXPECT_EQ(one.logits(), same);
  one.quantization()["quantized_layers"].erase(kLayer + "mlp.up_proj");
  EXPECT_THAT(one.refusal(), HasSubstr("up_proj"));

  // Attention in eight bits, the rest in four.
  Mutation both("modelopt_fp8");
  std::erase_if(both.tensors(),
                [](const FileTensor& t) { return t.name.find(".mlp.") != t.name.npos; });
  const Mutation nvfp4("modelopt_nvfp4");
  for (const FileTensor& t : nvfp4.tensors())
    if (t.name.find(".mlp.") != t.name.npos) both.tensors().push_back(t);
  const Json four = {{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}};
  both.quantization() = mixed({{kLayer + "self_attn", algorithm("FP8")}, {kLayer + "mlp", four}});
  ASSERT_EQ(both.refusal(), kAccepted);
  EXPECT_NE(both.logits(), same);
  EXPECT_NE(both.logits(), nvfp4.logits());
}

TEST(ModelOptMixed, EntriesThatSayTheSameShareTheirFormat) {
  Json layers = Json::object();
  for (int i = 0; i < 200; ++i)
    layers[fmt::format("model.layers.{}.mlp.experts", i)] =
        algorithm(i % 2 ? "W4A16_NVFP4" : "FP8_PB_WO");
  const Json config = mixed(layers);
  const Quantization made = read_modelopt(Fields(config, "config.json"));
  EXPECT_EQ(made.formats.size(), 2u);
  EXPECT_THAT(made.about, AllOf(HasSubstr("NVFP4"), HasSubstr("fp8")));
  const auto format_of = [&](const char* name) { return made.formats_of(name).front()->name; };
  EXPECT_THAT(format_of("model.layers.3.mlp.experts.17.up_proj"), HasSubstr("NVFP4"));
  EXPECT_THAT(format_of("model.layers.4.mlp.experts.17.up_proj"), HasSubstr("each block"));
  EXPECT_FALSE(made.formats_of("model.layers.4.self_attn.q_proj").front()->quantized());
}

TEST(ModelOptMixed, IsRefusedByLayerAndAlgorithm) {
  const auto refusal = [](const Json& quantization) {
    Mutation mutation("modelopt_fp8");
    mutation.quantization() = quantization;
    return mutation.refusal();
  };
  EXPECT_THAT(refusal(mixed({{kLayer + "mlp", algorithm("MXFP8")}})),
              AllOf(HasSubstr(kLayer + "mlp"), HasSubstr("\"quant_algo\" MXFP8 is not supported")));
  EXPECT_THAT(refusal(mixed({{kLayer + "mlp", Json::object()}})),
              AllOf(HasSubstr(kLayer + "mlp"), HasSubstr("quant_algo")));
  EXPECT_THAT(refusal(mixed({{kLayer + "mlp", "FP8"}})), HasSubstr("expected a JSON object"));
  Json none = mixed(Json::object());
  none.erase("quantized_layers");
  EXPECT_THAT(refusal(none), HasSubstr("needs \"quantized_layers\""));
}

// A description of a KV cache alone leaves weights as they are.
TEST(ModelOpt, MayDescribeTheCacheAlone) {
  for (const Json& said :
       {Json{{"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}},
        Json{{"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}}}}}) {
    Json quantization = said;
    quantization["quant_method"] = "modelopt";
    const testing::TestModel model("LlamaForCausalLM", {{"quantization_config", quantization}});
    EXPECT_EQ(model.config().quantization.method, "") << said;
  }
  const testing::TestModel model("LlamaForCausalLM",
                                 {{"quantization_config", {{"quant_method", "modelopt"}}}});
  EXPECT_THROW(model.config(), LoadError);
}

// Eight-bit floats in blocks of 128 x 128 are weights alone: activations stay as they are, so the
// model is that of the values. Scales of whole tensors are those of one block each.
TEST(ModelOpt, BlocksAreMultipliedByActivationsAsTheyAre) {
  Mutation blocks("modelopt_fp8");
  std::erase_if(blocks.tensors(),
                [](const FileTensor& t) { return t.name.ends_with(".input_scale"); });
  Mutation values("modelopt_fp8");
  values.quantization() = nullptr;
  std::erase_if(values.tensors(), [](const FileTensor& t) { return t.name.ends_with("_scale"); });
  for (FileTensor& scale : blocks.tensors()) {
    if (!scale.name.ends_with(".weight_scale")) continue;
    scale.shape = {1, 1, 1, 1};
    float factor = 0;
    std::memcpy(&factor, scale.data.data(), sizeof factor);
    FileTensor& weight =
        values.tensor(scale.name.substr(0, scale.name.size() - std::strlen("_scale")));
    std::vector<float> wide;
    for (const char code : weight.data)
      wide.push_back(from_e4m3(static_cast<uint8_t>(code)) * factor);
    weight.dtype = "F32";
    weight.data = testing::f32_bytes(wide);
  }
  blocks.quantization()["quant_algo"] = "FP8_PB_WO";
  ASSERT_EQ(blocks.refusal(), kAccepted);
  const std::vector<float> want = values.logits(), got = blocks.logits();
  ASSERT_EQ(got.size(), want.size());
  // Dot products have at most 96 terms, and a model of one layer has eight in a row.
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 8 * 96 * 0x1p-24 * (1 + std::abs(want[i]))) << i;
  blocks.tensor(kLayer + "mlp.up_proj.weight_scale").shape = {1};
  EXPECT_THAT(blocks.refusal(), AllOf(HasSubstr("up_proj.weight_scale"), HasSubstr("1, 1, 1, 1")));
}

}  // namespace
}  // namespace skiff::model
