// How published checkpoints spell what they are: descriptions that must load, and ones that are
// refused by name.
#include "model/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "model/model_testing.h"
#include "model/quantized_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Mutation;

constexpr const char* kAccepted = "accepted";

std::string refusal_of(const Json& quantization) {
  try {
    testing::TestModel("LlamaForCausalLM", {{"quantization_config", quantization}}).config();
    return kAccepted;
  } catch (const LoadError& e) {
    return e.what();
  }
}

// Optimum packs every layer with a bias.
TEST(PackedWords, BiasesOfZerosHaveNoEffect) {
  for (const char* name : {"gptq", "awq"}) {
    Mutation mutation(name);
    const std::string bias = "model.layers.0.self_attn.o_proj.bias";
    mutation.tensors().push_back({bias, "F16", {64}, std::string(128, '\0')});
    EXPECT_EQ(mutation.refusal(), kAccepted) << name;
    mutation.tensor(bias).data[1] = '\x3c';
    EXPECT_THAT(mutation.refusal(), HasSubstr(bias)) << name;
  }
}

TEST(SideFile, MayBeWrittenByAnotherProgram) {
  Mutation mutation("awq");
  Json& file = mutation.tables()["quant_config.json"];
  file = {{"zero_point", true}, {"q_group_size", 32}, {"w_bit", 4}, {"version", "GEMM"}};
  EXPECT_EQ(mutation.refusal(), kAccepted);
  file["q_group_size"] = 64;
  EXPECT_THAT(mutation.refusal(),
              AllOf(HasSubstr("\"group_size\" is 32"), HasSubstr("\"q_group_size\" 64")));
  file["q_group_size"] = 32;
  file["w_bit"] = 8;
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr("\"bits\" is 4"), HasSubstr("\"w_bit\" 8")));
  file["w_bit"] = 4;
  file["version"] = "GEMV";
  EXPECT_THAT(mutation.refusal(), HasSubstr("\"version\" is \"gemm\""));
}

// The status says how far a program got, not how weights are stored.
TEST(CompressedTensors, FrozenIsAsGoodAsCompressed) {
  for (const char* name : {"ct_w4a16", "ct_fp8_dynamic", "ct_w8a8"}) {
    Mutation mutation(name);
    const std::vector<float> compressed = mutation.logits();
    mutation.quantization()["quantization_status"] = "frozen";
    ASSERT_EQ(mutation.refusal(), kAccepted) << name;
    EXPECT_EQ(mutation.logits(), compressed) << name;
    mutation.quantization()["quantization_status"] = "calibration";
    EXPECT_THAT(mutation.refusal(), HasSubstr("\"quantization_status\" is calibration")) << name;
  }
}

// The shape beside a packed weight is stored as 64-bit integers by most writers, and as 32-bit ones
// by some.
TEST(CompressedTensors, ShapesMayBeNarrow) {
  Mutation mutation("ct_w4a16");
  const std::vector<float> wide = mutation.logits();
  for (testing::FileTensor& t : mutation.tensors()) {
    if (!t.name.ends_with(".weight_shape")) continue;
    t.dtype = "I32";
    t.data = t.data.substr(0, 4) + t.data.substr(8, 4);
  }
  ASSERT_EQ(mutation.refusal(), kAccepted);
  EXPECT_EQ(mutation.logits(), wide);
  mutation.tensor("model.layers.0.mlp.up_proj.weight_shape").data[4] ^= 1;
  EXPECT_THAT(mutation.refusal(), HasSubstr("up_proj.weight_shape\" says 96 x 65"));
}

TEST(CompressedTensors, GroupsThatWereNotSetAreInOrder) {
  Mutation mutation("ct_w4a16");
  const std::vector<float> without = mutation.logits();
  const std::string name = "model.layers.0.mlp.up_proj.weight_g_idx";
  mutation.tensors().push_back({name, "I32", {64}, std::string(256, '\xff')});
  ASSERT_EQ(mutation.refusal(), kAccepted);
  EXPECT_EQ(mutation.logits(), without);
  mutation.tensor(name).data.replace(0, 4, std::string(4, '\0'));
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr("column 1 is in group -1")));
}

TEST(Fp8, ScalesMayHaveTheNamesOfTransformers) {
  Mutation mutation("autofp8");
  const std::vector<float> before = mutation.logits();
  mutation.quantization()["weight_block_size"] = nullptr;
  for (testing::FileTensor& t : mutation.tensors()) {
    if (t.name.ends_with(".weight_scale")) t.name += "_inv";
    if (const size_t at = t.name.find(".input_scale"); at != t.name.npos)
      t.name.replace(at, std::string::npos, ".activation_scale");
  }
  ASSERT_EQ(mutation.refusal(), kAccepted);
  EXPECT_EQ(mutation.logits(), before);
  mutation.drop("model.layers.0.mlp.up_proj.weight_scale_inv");
  EXPECT_THAT(mutation.refusal(), HasSubstr("model.layers.0.mlp.up_proj"));
}

TEST(Gptq, TheOrderOfMarlinIsRefused) {
  Mutation mutation("gptq");
  mutation.quantization()["is_marlin_format"] = false;
  EXPECT_EQ(mutation.refusal(), kAccepted);
  mutation.quantization()["is_marlin_format"] = true;
  EXPECT_THAT(mutation.refusal(), HasSubstr("\"is_marlin_format\" true is not supported"));
}

TEST(Methods, ThatAreNotNamedAreSaidToBeMissing) {
  EXPECT_THAT(refusal_of({{"group_size", 64}, {"bits", 4}}),
              AllOf(HasSubstr("missing key \"quant_method\""), HasSubstr("MLX")));
  EXPECT_THAT(refusal_of(Json::object()), HasSubstr("missing key \"quant_method\""));
}

TEST(Awq, LayoutIsUnderTheKeyOfEachWriter) {
  for (const char* key : {"version", "format", "checkpoint_format"})
    for (const auto& [layout, said] :
         {std::pair("GEMM", kAccepted), {"gemv", "gemv is not supported"}}) {
      Mutation mutation("awq");
      Json& q = mutation.quantization();
      q.erase("version");
      q["backend"] = "auto";
      q[key] = layout;
      EXPECT_THAT(mutation.refusal(), HasSubstr(said)) << key;
    }
  Mutation first("awq");  // the older key counts
  first.quantization()["format"] = "gptq";
  EXPECT_EQ(first.refusal(), kAccepted);
}

TEST(Awq, NamesOfKernelsSayNothingOfTheLayout) {
  for (const auto& [backend, said] : {std::pair("autoawq", kAccepted),
                                      {"marlin", kAccepted},
                                      {"exllama_v2", kAccepted},
                                      {"llm-awq", "\"backend\" llm-awq is not supported"}}) {
    Mutation mutation("awq");
    mutation.quantization()["backend"] = backend;
    EXPECT_THAT(mutation.refusal(), HasSubstr(said)) << backend;
  }
}

// Names in lists of layers that stay plain are whole components of a module's name.
TEST(PlainLayers, AreNamedByWholeComponents) {
  const auto with = [](const Json& names) {
    Mutation mutation("fp8_block");
    mutation.quantization()["modules_to_not_convert"] = names;
    return mutation.refusal();
  };
  EXPECT_EQ(with({"lm_head", "mlp.gate"}), kAccepted);
  EXPECT_EQ(with(Json::array({"proj", "layers.0.mlp.up", ""})), kAccepted);
  for (const char* name : {"mlp", "gate_proj", "model.layers.0.", "layers.0.self_attn"})
    EXPECT_NE(with(Json::array({name})), kAccepted) << name;
  const NamePattern pattern(PatternKind::kComponents, "mlp.gate", "test");
  EXPECT_TRUE(pattern.matches("mlp.gate"));
  EXPECT_TRUE(pattern.matches("model.layers.0.mlp.gate"));
  EXPECT_TRUE(pattern.matches("mlp.gate.weight"));
  EXPECT_FALSE(pattern.matches("model.mlp.gate_proj"));
  EXPECT_FALSE(pattern.matches("model.xmlp.gate"));
}

// Every step of such a pattern is allowed by itself; two hundred of them are not.
TEST(RegularExpressions, HaveABudgetTogether) {
  Mutation mutation("ct_w4a16");
  Json ignore = Json::array();
  for (int i = 0; i < 200; ++i) ignore.push_back(fmt::format("re:.*.*.*.*.*(?:#{}|%)", i));
  mutation.quantization()["ignore"] = ignore;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr("quantization_config"), HasSubstr("patterns"),
                                        HasSubstr("write simpler ones")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

// The list has as many modules and patterns as that of a large mixture.
TEST(RegularExpressions, OfAnOrdinaryListAreAllowed) {
  Json ignore = Json::array({"lm_head"});
  for (int i = 0; i < 300; ++i)
    ignore.push_back(fmt::format("re:.*layers\\.{}\\..*\\.self_attn.*", i + 100));
  const Json config = {
      {"quant_method", "compressed-tensors"},
      {"ignore", ignore},
      {"config_groups",
       {{"group_0",
         {{"format", "pack-quantized"},
          {"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}}}}}}}};
  const Quantization made = read_compressed_tensors(Fields(config, "config.json"));
  for (int layer = 0; layer < 61; ++layer)
    for (int expert = 0; expert < 8; ++expert)
      for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name =
            fmt::format("model.layers.{}.mlp.experts.{}.{}", layer, expert, part);
        ASSERT_EQ(made.formats_of(name).size(), 2u) << name;
        ASSERT_EQ(made.formats_of(name).size(), 2u) << name;
      }
}

Json auto_round(const char* packing) {
  return {{"quant_method", "auto-round"},
          {"bits", 4},
          {"group_size", 32},
          {"sym", true},
          {"data_type", "int"},
          {"packing_format", packing},
          {"iters", 200},
          {"autoround_version", "0.5.1"}};
}

TEST(AutoRound, TensorsAreThoseOfGptqOrAwq) {
  for (const auto& [name, packing] :
       {std::pair("gptq", "auto_round:auto_gptq"), {"awq", "auto_round:auto_awq"}}) {
    Mutation mutation(name);
    const std::vector<float> plain = mutation.logits();
    for (const char* method : {"auto-round", "intel/auto-round"}) {
      mutation.quantization() = auto_round(packing);
      mutation.quantization()["quant_method"] = method;
      mutation.quantization()["extra_config"] = {
          {"lm_head", {{"bits", 16}, {"data_type", "float"}}},
          {"model.layers.0.mlp.up_proj", {{"bits", 4}, {"group_size", 32}, {"sym", true}}}};
      ASSERT_EQ(mutation.refusal(), kAccepted) << name << method;
      EXPECT_EQ(mutation.logits(), plain) << name << method;
    }
    mutation.quantization()["extra_config"] = {{"model.layers.0.mlp.up_proj", {{"bits", 16}}}};
    EXPECT_THAT(mutation.refusal(), HasSubstr("says otherwise")) << name;
  }
}

TEST(AutoRound, OtherPackingsAndOverridesAreRefused) {
  const auto with = [](const char* key, const Json& value) {
    Json config = auto_round("auto_round:auto_gptq");
    config[key] = value;
    return refusal_of(config);
  };
  EXPECT_EQ(with("iters", 0), kAccepted);
  EXPECT_THAT(with("packing_format", "auto_round:llm_compressor"),
              HasSubstr("\"packing_format\" auto_round:llm_compressor is not supported"));
  EXPECT_THAT(with("data_type", "mx_fp"), HasSubstr("\"data_type\" mx_fp is not supported"));
  EXPECT_THAT(with("act_bits", 8), HasSubstr("\"act_bits\" is 8"));
  EXPECT_EQ(with("act_bits", 16), kAccepted);
  for (const auto& [key, value] : {std::pair("bits", Json(8)),
                                   {"group_size", Json(64)},
                                   {"sym", Json(false)},
                                   {"data_type", Json("mx_fp")},
                                   {"act_bits", Json(8)}})
    EXPECT_THAT(with("extra_config", {{"model.layers.0.mlp.up_proj", {{key, value}}}}),
                AllOf(HasSubstr("extra_config"), HasSubstr("up_proj"), HasSubstr(key)));
}

}  // namespace
}  // namespace skiff::model
