// Tiny checkpoints in every format (tools/quantized_checkpoints/make.py): the values of each weight
// bit for bit, and the logits of the model.
//
// Tolerances of logits. Models have one or two layers; dot products have K <= 128 terms where
// activations are not rounded. As in golden_test.cc, float32 arithmetic moves logits by at most
// 8 * sensitivity * sqrt(K) * 2^-24 when weights are the same numbers. Where the format also rounds
// activations to eight bits, each is changed by at most half a step of its scale: 2^-4 of its size
// as a float of 3 bits, or 1/254 of the row's largest as an integer (of all rows where the scale is
// static); `sensitivity` is the largest change of any logit per unit of random relative change of
// all weights, and errors of activations act as such a change of about 2^-4 / sqrt(3) each, at most
// four times that in all logits together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/golden_cases_testing.h"
#include "model/quantized_testing.h"
#include "model/registry.h"
#include "model/unpack.h"
#include "tensor/device_memory.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::config_of;
using testing::folder_of;
using ::testing::HasSubstr;
using testing::kScaleFiles;
using testing::Mutation;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder_of("")))
    all.push_back(entry.path().filename().string());
  std::ranges::sort(all);
  return all;
}

// The file or folder that is loaded.
std::string model_of(const std::string& name) {
  const std::string gguf = folder_of(name) + "/model.gguf";
  return fs::exists(gguf) ? gguf : folder_of(name);
}

std::string fnv(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(std::span(values)))
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

using MakeOps = std::unique_ptr<Ops> (*)();
std::vector<MakeOps> backends() {
  std::vector<MakeOps> all = {make_reference_ops, [] { return make_cpu_ops(2); }};
  if (num_cuda_devices() > 0) all.push_back([] { return make_cuda_ops({}); });
  return all;
}

class QuantizedCheckpoint : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizedCheckpoint, ValuesAreThoseOfTheFormatBitForBit) {
  const ModelConfig config = read_model_config(model_of(GetParam()));
  const Checkpoint checkpoint(model_of(GetParam()));
  const auto slots = slots_of(config.spec);
  const auto rules = find_family(config.spec.arch)->names();
  const auto sources =
      find_sources(checkpoint, rules, config.quantization, slots, config.spec, DType::kF32);
  const Json expected = read_json_file(folder_of(GetParam()) + "/expected.json");
  size_t compared = 0;
  for (const Source& source : sources)
    for (const StoredModule& module : source.modules) {
      if (!module.format->quantized()) continue;
      std::vector<float> values(static_cast<size_t>(module.shape.rows() * module.shape.in));
      widen(module, {0, module.shape.rows(), 0, module.shape.in}, values.data());
      const std::string& name = module.of(Role::kWeight)->entry->name;
      ASSERT_TRUE(expected.contains(name)) << name;
      EXPECT_EQ(expected[name].get<std::string>(), fnv(values)) << name;
      ++compared;
    }
  EXPECT_EQ(compared, expected.size());
}

TEST_P(QuantizedCheckpoint, LogitsAreThoseOfItsValues) {
  std::ifstream in(folder_of(GetParam()) + "/expected.st", std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(in), {});
  const auto header = parse_safetensors(std::as_bytes(std::span(file)));
  ASSERT_TRUE(header);
  const auto prompt = testing::read_values<int32_t>(*header, file, "prompt");
  const auto want = testing::read_values<float>(*header, file, "logits");
  const float sensitivity = testing::read_values<float>(*header, file, "sensitivity").at(0);
  const ModelConfig config = config_of(model_of(GetParam()));
  bool rounds_activations = false;
  for (const StoredFormat& format : config.quantization.formats)
    rounds_activations = rounds_activations || format.values.input;
  const double unit =
      rounds_activations ? 4 * 0x1p-4 / std::sqrt(3.0) : 8 * std::sqrt(128) * 0x1p-24;
  for (const auto& make : backends()) {
    const auto ops = make();
    const LoadedModel model =
        load_model(model_of(GetParam()), config,
                   {.precision = uniform_precision(DType::kF32), .progress = {}}, *ops);
    comm::Mesh mesh = comm::make_solo_mesh();
    const int rows = static_cast<int>(prompt.size());
    SingleSequence sequence(model, *ops, mesh, DType::kF32, rows, rows);
    const Tensor logits = sequence.forward(prompt);
    ASSERT_EQ(logits.elements(), std::ssize(want));
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double d = std::abs(static_cast<double>(logits.as<float>()[i]) - want[i]);
      worst = d <= worst ? worst : d;  // NaN is kept
    }
    EXPECT_LE(worst, unit * sensitivity) << ops->name();
    const auto [low, high] = std::ranges::minmax(want);
    EXPECT_LT(unit * sensitivity, (high - low) * (rounds_activations ? 1 : 1e-3));  // it judges
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedCheckpoint, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

// What is multiplied as it is stored, with the scales of inputs that are stored.
TEST(QuantizedCheckpoint, RoundsInputsWithStoredScales) {
  const InputFormat fixed{.dtype = DType::kI8, .scales = InputFormat::kStatic};
  const auto load = [](const char* name, Ops& ops) {
    return load_model(folder_of(name), config_of(folder_of(name)),
                      {.precision = uniform_precision(DType::kF32), .progress = {}}, ops);
  };
  const auto ops = make_reference_ops();
  const LoadedModel dense = load("paddlenlp_a8w8", *ops);
  const Json table = read_json_file(folder_of("paddlenlp_a8w8") + "/act_scales.json");
  const auto& qkv = std::get<GqaWeights>(dense.weights.layers[0].mixer).qkv;
  EXPECT_EQ(qkv.format, (WeightFormat{DType::kI8, 1, 0, DType::kF32, {}, fixed}));
  const auto largest = table["llama.layers.0.self_attn.q_proj.activation_quanter"].get<float>();
  EXPECT_EQ(*qkv.input_scale.as<float>(), largest / 127);
  for (const char* name : {"fastdeploy_w4a8", "fastdeploy_w4a8_tiles"}) {
    const LoadedModel mixture = load(name, *ops);
    const auto& moe = std::get<MoeWeights>(mixture.weights.layers[1].ffn);
    const WeightFormat integers{DType::kI4, 1, 0, DType::kF32, {}, fixed};
    EXPECT_EQ(moe.gate_up.format, integers) << name;
    ASSERT_EQ(moe.gate_up.input_scale.elements(), 4) << name;
    // make.py has seen 8 + 64 / 64; a factor is rounded once more on its way.
    for (int e = 0; e < 4; ++e)
      EXPECT_FLOAT_EQ(moe.gate_up.input_scale.as<float>()[e], 9.0f / 127) << name;
    // Inputs that are rotated before they are rounded are neither here.
    EXPECT_EQ(moe.down.format, WeightFormat{.dtype = DType::kF32}) << name;
  }
}

// Tensors without an effect: a layer's copy, and biases of zeros.
bool has_no_effect(const std::string& checkpoint, const std::string& name) {
  return checkpoint == "paddlenlp_a8w8_smooth" &&
         (name.find(".layer.") != std::string::npos || name.ends_with("o_proj.bias") ||
          name.ends_with("down_proj.bias"));
}

// What a checkpoint may lack: ModelOpt folds factors of inputs into other layers where it can.
bool is_note(const std::string& name) {
  return name.ends_with(".g_idx") || name.ends_with(".pre_quant_scale") ||
         name.ends_with(".weight_shape") || name.ends_with(".weight_format");
}
bool has_no_shape(const std::string& name) {
  return name.find(".quant_state.") != std::string::npos;
}

TEST(QuantizedMutation, EveryTensorThatIsDroppedIsNamed) {
  for (const std::string& name : names()) {
    if (name.starts_with("gguf")) continue;
    const Mutation whole(name);
    for (const testing::FileTensor& t : whole.tensors()) {
      // Paddle's names are told by the embedding's.
      if (is_note(t.name) || has_no_effect(name, t.name)) continue;
      if (t.name == "ernie.embed_tokens.weight" || t.name == "llama.embed_tokens.weight" ||
          t.name == "qwen2.embed_tokens.weight")
        continue;
      Mutation mutation(name);
      mutation.drop(t.name);
      const std::string module = t.name.substr(0, t.name.rfind('.'));
      EXPECT_THAT(mutation.refusal(), HasSubstr(module)) << name << ": " << t.name;
    }
  }
}

TEST(QuantizedMutation, EveryShapeAndDtypeIsChecked) {
  for (const std::string& name : names()) {
    if (name.starts_with("gguf")) continue;
    const Mutation whole(name);
    for (const testing::FileTensor& t : whole.tensors()) {
      if (has_no_effect(name, t.name)) continue;
      Mutation shaped(name);
      testing::FileTensor& other = shaped.tensor(t.name);
      other.shape.push_back(2);
      other.data += other.data;
      EXPECT_THAT(shaped.refusal(),
                  AllOf(HasSubstr(t.name), HasSubstr(has_no_shape(t.name) ? "" : "has shape")))
          << name << ": " << t.name;
      Mutation typed(name);
      testing::FileTensor& wrong = typed.tensor(t.name);
      wrong.dtype = "BOOL";
      wrong.data.resize(wrong.data.size() * 8 / static_cast<size_t>(safetensors_bits(t.dtype)));
      EXPECT_THAT(typed.refusal(), AllOf(HasSubstr(t.name), HasSubstr("BOOL")))
          << name << ": " << t.name;
    }
  }
}

struct FieldCase {
  const char* checkpoint;
  const char* pointer;
  Json value;
  const char* said;
};

TEST(QuantizedMutation, FieldsOfTheConfigurationAreChecked) {
  const std::vector<FieldCase> cases = {
      {"gptq", "/quant_method", "hqq", "\"quant_method\" hqq is not supported"},
      {"gptq", "/bits", 3, "\"bits\" is 3"},
      {"gptq", "/group_size", 64, "config.json asks for"},
      {"gptq", "/group_size", 0, "\"group_size\" is 0"},
      {"gptq", "/group_size", (int64_t{1} << 32) + 32, "\"group_size\" is 4294967328"},
      {"gptq", "/bits", 4.5, "\"bits\" must be an integer"},
      {"gptq", "/pack_dtype", "int16", "\"pack_dtype\" is int16"},
      {"gptq", "/checkpoint_format", "marlin", "\"checkpoint_format\" marlin is not supported"},
      {"gptq", "/sym", false, "write the checkpoint as gptq_v2"},
      {"gptq_v2_zeros", "/sym", true, "set \"sym\" to false"},
      {"awq", "/bits", 8, "\"bits\" is 8"},
      {"awq", "/version", "gemv", "\"version\" gemv is not supported"},
      {"awq", "/zero_point", false, "\"zero_point\" false"},
      {"awq", "/modules_to_not_convert", Json::array({"k_proj"}), "says otherwise"},
      {"fp8_block", "/fmt", "e5m2", "\"fmt\" is e5m2"},
      {"fp8_block", "/weight_block_size", Json::array({128}), "it must be two sizes"},
      {"fp8_block", "/weight_block_size", Json::array({32, 64}), "config.json asks for"},
      {"fp8_block", "/activation_scheme", "static", "does not go with \"weight_block_size\""},
      {"autofp8", "/activation_scheme", "sometimes", "must be static or dynamic"},
      {"autofp8", "/activation_scheme", "dynamic", "input_scale"},
      {"modelopt_fp8", "/quant_algo", "W4A8_AWQ", "\"quant_algo\" W4A8_AWQ is not supported"},
      {"modelopt_fp8", "/quant_algo", "NVFP4", "F8_E4M3"},
      {"ct_nvfp4", "/config_groups/group_0/weights/type", "int", "\"type\" is int"},
      {"bnb_nf4", "/bnb_4bit_quant_type", "fp4", "bitsandbytes__fp4"},
      {"bnb_nf4", "/bnb_4bit_quant_storage", "bfloat16", "\"bnb_4bit_quant_storage\" is bfloat16"},
      {"bnb_nf4", "/load_in_8bit", true, "must be true"},
      {"bnb_int8", "/load_in_8bit", false, "must be true"},
      {"modelopt_awq", "/group_size", 64, "config.json asks for"},
      {"modelopt_awq", "/group_size", 0, "\"group_size\" is 0"},
      {"modelopt_awq", "/has_zero_point", true, "\"has_zero_point\" true"},
      {"fastdeploy_wint8", "/quantization", "wint2", "wint2 with \"is_permuted\" false"},
      {"fastdeploy_wint8", "/is_permuted", true, "config.json asks for"},
      {"fastdeploy_wint4_tiles", "/quantization", "wint8", "config.json asks for"},
      {"fastdeploy_wint4_tiles", "/quantization", "w4afp8",
       "quantized to w4afp8 are not supported"},
      {"fastdeploy_wint4_tiles", "/is_permuted", false, "wint4 with \"is_permuted\" false"},
      {"fastdeploy_mix_tiles", "/moe_quant_type", "wint8", "config.json asks for"},
      {"fastdeploy_mix_tiles", "/moe_quant_type", "w4afp8",
       "quantized to w4afp8 are not supported"},
      {"fastdeploy_mix_tiles", "/moe_quant_type", "w4a8", "activation_scale"},
      {"fastdeploy_w4a8", "/moe_quant_type", "wint4", "wint4 with \"is_permuted\" false"},
      {"fastdeploy_w4a8", "/hadamard_block_size", 64, "\"hadamard_block_size\" is 64; known: 128"},
      {"fastdeploy_w4a8", "/hadamard_block_size", 512, "256 inputs are not whole blocks of 512"},
      {"fastdeploy_w4a8_tiles", "/hadamard_block_size", "big", "must be an integer"},
      {"fastdeploy_w4a8_tiles", "/dense_quant_type", "wint4", "config.json asks for"},
      {"fastdeploy_w4a8_tiles", "/dense_quant_type", "w4a8", "quant_weight"},
      {"fastdeploy_wint2", "/dense_quant_type", "wint4", "config.json asks for"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_end_layer", 1, "U8"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_end_layer", -2,
       "\"quant_end_layer\" is -2"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_type", "w4a8", "w4a8"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w2_quant_config/quant_group_size", 128,
       "\"quant_group_size\" 64"},
      {"fastdeploy_wint8", "/is_quantized", false, "quant_weight"},
      {"paddlenlp_a8w8", "/quant_type", "a8w8_fp8", "\"quant_type\" a8w8_fp8 is not supported"},
      {"paddlenlp_a8w8", "/shift", true, "\"shift\" true is not supported"},
      {"paddlenlp_a8w8", "/quant_round_type", 1, "\"quant_round_type\" is 1"},
      {"paddlenlp_a8w8", "/weight_quant_method", "groupwise",
       "\"weight_quant_method\" is groupwise"},
      {"paddlenlp_a8w8", "/shift_smooth_all_linears", true, "smooth_weight"},
      {"paddlenlp_a8w8_smooth", "/shift_smooth_all_linears", false, "o_proj.weight_quanter"},
      {"ct_w4a16", "/config_groups/group_0/weights/num_bits", 3, "\"num_bits\" is 3"},
      {"ct_w4a16", "/config_groups/group_0/weights/num_bits", 4.5, "must be an integer"},
      {"ct_w4a16", "/config_groups/group_0/weights/symmetric", false, "weight_zero_point"},
      {"ct_w4a16", "/config_groups/group_0/weights/group_size", 16, "config.json asks for"},
      {"ct_w4a16", "/config_groups/group_0/format", "marlin-24", "\"format\" marlin-24"},
      {"ct_w4a16", "/config_groups/group_0/targets", Json::array({"re:("}), "no regular"},
      {"ct_w4a16", "/ignore", Json::array({"re:.*q_proj"}), "says otherwise"},
      {"ct_w4a16", "/sparsity_config", {{"format", "sparse-bitmask"}}, "\"sparsity_config\""},
      {"ct_w8a8", "/config_groups/group_0/weights/num_bits", 4, "integers are from -8 to 7"},
      {"ct_w8a8", "/config_groups/group_0/weights/num_bits", 5, "\"num_bits\" is 5"},
      {"ct_w4a8", "/config_groups/group_0/weights/symmetric", false, "\"num_bits\" is 4"},
      {"ct_w4a8", "/config_groups/group_0/weights/group_size", 16, "config.json asks for"},
      {"ct_fp8_dynamic", "/config_groups/group_0/input_activations/num_bits", 4, "8 bits"},
  };
  for (const FieldCase& c : cases) {
    Mutation mutation(c.checkpoint);
    mutation.quantization()[Json::json_pointer(c.pointer)] = c.value;
    EXPECT_THAT(mutation.refusal(), HasSubstr(c.said)) << c.checkpoint << c.pointer;
  }
}

// Scales of PaddleNLP lie in files beside the tensors.
TEST(QuantizedMutation, EveryScaleOfATableIsNeeded) {
  for (const std::string name : {"paddlenlp_a8w8", "paddlenlp_a8w8_smooth"}) {
    const Mutation whole(name);
    EXPECT_EQ(whole.refusal(), "accepted");
    for (const char* file : kScaleFiles) {
      Mutation none(name);
      none.tables().erase(file);
      EXPECT_THAT(none.refusal(), AllOf(HasSubstr(file), HasSubstr("it is missing")));
      for (const auto& [key, value] : whole.tables().at(file).items()) {
        // These share the inputs of queries and of the gate.
        if (key.ends_with("k_proj.activation_quanter") ||
            key.ends_with("v_proj.activation_quanter") ||
            key.ends_with("up_proj.activation_quanter"))
          continue;
        Mutation mutation(name);
        mutation.tables()[file].erase(key);
        EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(file), HasSubstr(key)));
      }
    }
  }
}

TEST(QuantizedMutation, NumbersOfTablesAreChecked) {
  const std::string weight = "llama.layers.0.mlp.up_proj.weight_quanter";
  const std::string input = "llama.layers.0.mlp.gate_proj.activation_quanter";
  struct Case {
    const char* file;
    std::string key;
    Json value;
    const char* said;
  };
  const Json ones = Json(std::vector<float>(95, 1));
  for (const Case& c : std::vector<Case>{{kScaleFiles[0], weight, ones, "has 95 numbers"},
                                         {kScaleFiles[0], weight, "1", "is no number"},
                                         {kScaleFiles[0], weight, {{"a", 1}}, "is no number"},
                                         {kScaleFiles[1], input, {1, 1}, "has 2 numbers"},
                                         {kScaleFiles[1], input, 0, "no inputs were seen"},
                                         {kScaleFiles[1], input, -1, "number 0 is -1"},
                                         {kScaleFiles[1], input, 1e300, "number 0 is inf"}}) {
    Mutation mutation("paddlenlp_a8w8");
    mutation.tables()[c.file][c.key] = c.value;
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(c.file), HasSubstr(c.key), HasSubstr(c.said)));
  }
  Mutation zero("paddlenlp_a8w8");
  zero.tables()[kScaleFiles[0]][weight][3] = 0;
  EXPECT_THAT(zero.refusal(), HasSubstr("the scale of block [3, 0] is 0, its elements are not"));
  Mutation list("paddlenlp_a8w8");
  list.tables()[kScaleFiles[1]][input] = Json::array({list.tables()[kScaleFiles[1]][input]});
  EXPECT_EQ(list.refusal(), "accepted");
}

TEST(QuantizedMutation, ScalesBesideFactorsAreCheckedToo) {
  Mutation zero("paddlenlp_a8w8_smooth");
  zero.tables()[kScaleFiles[0]]["qwen2.layers.0.mlp.down_proj.layer.weight_quanter"][5] = 0;
  EXPECT_THAT(zero.refusal(), HasSubstr("the scale of output 5 is 0, its elements are not"));
  Mutation infinite("paddlenlp_a8w8_smooth");
  const std::string name = "qwen2.layers.0.mlp.down_proj.smooth_weight";
  infinite.tensor(name).data[0] = '\x80';
  infinite.tensor(name).data[1] = '\x7f';
  EXPECT_THAT(infinite.refusal(),
              AllOf(HasSubstr(name), HasSubstr("the factor of input 0 is inf")));
}

TEST(QuantizedMutation, StoredFloatsMustBeWholeNumbers) {
  const std::string name = "llama.layers.0.mlp.up_proj.weight";
  for (const auto& [bits, said] :
       {std::pair(0x3f40, "is 0.75"), {0x4301, "is 129"}, {0x7fc0, "is nan"}}) {
    Mutation mutation("paddlenlp_a8w8");
    std::memcpy(mutation.tensor(name).data.data(), &bits, 2);
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr(said)));
  }
}

TEST(QuantizedMutation, ShiftsAndBiasesBesideFactorsMustBeZeros) {
  for (const std::string end : {"o_proj.shift_bias", "o_proj.bias", "o_proj.layer.bias"}) {
    Mutation mutation("paddlenlp_a8w8_smooth");
    mutation.tensor("qwen2.layers.0.self_attn." + end).data[1] = '\x3f';
    EXPECT_THAT(mutation.refusal(), HasSubstr(end));
  }
}

// Experts' tensors are those that FastDeploy always stores, whatever is said of the others.
TEST(QuantizedMutation, ScalesOfExpertsInputsAreChecked) {
  for (const char* name : {"fastdeploy_w4a8", "fastdeploy_w4a8_tiles"})
    for (const float bad : {0.0f, -1.0f, INFINITY, std::nanf("")}) {
      Mutation mutation(name);
      const std::string scale = "ernie.layers.1.mlp.experts.2.down_proj.activation_scale";
      std::memcpy(mutation.tensor(scale).data.data(), &bad, sizeof bad);
      EXPECT_THAT(mutation.refusal(), HasSubstr("experts.2.down_proj")) << name << bad;
    }
}

TEST(QuantizedMutation, ScalesOfRotatedWeightsAreChecked) {
  const std::string name = "ernie.layers.1.mlp.experts.2.down_proj.weight_scale";
  for (const auto& [bad, said] : {std::pair(0.0f, "the scale of output 5 is 0"),
                                  {INFINITY, "the scale of output 5 is inf"}}) {
    Mutation mutation("fastdeploy_w4a8");
    std::memcpy(mutation.tensor(name).data.data() + 5 * sizeof bad, &bad, sizeof bad);
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr(said)));
  }
}

TEST(QuantizedMutation, TablesOfOneRankAreNamed) {
  Mutation mutation("paddlenlp_a8w8");
  mutation.tables()["act_scales_0.json"] = mutation.tables()["act_scales.json"];
  mutation.tables().erase("act_scales.json");
  EXPECT_THAT(mutation.refusal(), HasSubstr("act_scales_0.json is of one rank of several"));
}

TEST(QuantizedMutation, ScalesMustBeFiniteAndZeroOnlyForZeros) {
  const std::string name = "model.layers.0.mlp.down_proj.weight_scale_inv";
  for (const float bad : {0.0f, std::nanf(""), INFINITY}) {
    Mutation mutation("fp8_block");
    std::memcpy(mutation.tensor(name).data.data(), &bad, sizeof bad);
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr("the scale of block [0, 0]")));
  }
}

TEST(QuantizedMutation, WordsOfTwoBitCodesAreChecked) {
  for (const float bad : {1e9f, std::nanf("")}) {
    Mutation mutation("fastdeploy_wint2");
    const std::string name = "ernie.layers.1.mlp.experts.1.down_proj.code_zp";
    std::memcpy(mutation.tensor(name).data.data(), &bad, sizeof bad);
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr("the word of output 0")));
  }
}

TEST(QuantizedMutation, ZeroPointsOfBothVersionsAreNotMixed) {
  Mutation mutation("gptq");
  mutation.tensor("model.layers.0.mlp.up_proj.qzeros").data[5] = '\x78';
  EXPECT_THAT(mutation.refusal(),
              AllOf(HasSubstr("model.layers.0.mlp.up_proj.qzeros"), HasSubstr("zero point")));
}

TEST(QuantizedMutation, GroupsOfColumnsAreChecked) {
  Mutation mutation("gptq_desc_act");
  mutation.tensor("model.layers.0.self_attn.o_proj.g_idx").data[0] = 9;
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr("o_proj.g_idx"), HasSubstr("group")));
}

TEST(QuantizedMutation, DescriptionsOfBitsandbytesAreChecked) {
  const std::string state = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4";
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"blocksize\": 64", "\"blocksize\": 32", "\"blocksize\" is 32"},
      {"\"shape\": [96, 64]", "\"shape\": [64, 96]", "another shape"},
      {"nested_blocksize\": 256", "nested_blocksize\": 128", "\"nested_blocksize\" is 128"},
      {"\"nested_offset\"", "\"offset\"", "nested_offset"},
      {"{", "[", "is no description"}};
  for (const auto& [from, to, said] : cases) {
    Mutation mutation("bnb_nf4_nested");
    testing::FileTensor& tensor = mutation.tensor(state);
    const size_t at = tensor.data.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    tensor.data.replace(at, from.size(), to);
    tensor.shape = {std::ssize(tensor.data)};
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr("up_proj"), HasSubstr(said))) << to;
  }
}

TEST(QuantizedMutation, ScalesOfWholeWeightsAreChecked) {
  for (const float bad : {0.0f, std::nanf("")}) {
    Mutation mutation("ct_nvfp4");
    const std::string name = "model.layers.0.mlp.up_proj.weight_global_scale";
    std::memcpy(mutation.tensor(name).data.data(), &bad, sizeof bad);
    EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr("the scale is")));
  }
  Mutation mutation("autofp8");
  const std::string name = "model.layers.0.mlp.up_proj.input_scale";
  const float bad = 0;
  std::memcpy(mutation.tensor(name).data.data(), &bad, sizeof bad);
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr(name), HasSubstr("it must be positive")));
}

// Shapes of packed formats leave out the number of experts: those of a single expert, under the
// name of a stack of four, would be read past their end.
TEST(QuantizedMutation, StacksOfPackedExpertsAreRefused) {
  const Mutation whole("gptq_moe");
  Mutation mutation("gptq_moe");
  const std::string experts = "model.layers.0.mlp.experts.", first = experts + "0.gate_proj.";
  for (const testing::FileTensor& t : whole.tensors()) {
    if (!t.name.starts_with(experts) || t.name.find(".down_proj.") != std::string::npos) continue;
    if (!t.name.starts_with(first)) {
      mutation.drop(t.name);
      continue;
    }
    testing::FileTensor& gate_up = mutation.tensor(t.name);
    gate_up.name = experts + "gate_up_proj." + t.name.substr(first.size());
    if (gate_up.shape.size() < 2) continue;
    gate_up.shape[1] *= 2;
    gate_up.data += t.data;
  }
  EXPECT_THAT(mutation.refusal(),
              HasSubstr("experts.gate_up_proj.qweight\" is a stack of experts"));
}

// A weight that the configuration lists and the file has plain is loaded plain.
TEST(QuantizedMutation, PlainWeightsAmongQuantizedOnesAreLoaded) {
  Mutation mutation("gptq");
  const std::string module = "model.layers.0.mlp.down_proj";
  testing::FileTensor& weight = mutation.tensor(module + ".qweight");
  weight = {module + ".weight", "F32", {64, 96}, std::string(size_t{64} * 96 * 4, '\0')};
  for (const char* end : {".qzeros", ".scales", ".g_idx"}) mutation.drop(module + end);
  EXPECT_EQ(mutation.refusal(), "accepted");
}

}  // namespace
}  // namespace skiff::model
