// Tiny checkpoints in every format (tools/quantized_checkpoints/make.py): the values of each weight
// bit for bit, and the logits of the model.
//
// Tolerances of logits. Models have one or two layers; dot products have K <= 128 terms. As in
// golden_test.cc, float32 arithmetic moves logits by at most 8 * sensitivity * sqrt(K) * 2^-24 when
// weights are the same numbers. Where the format also rounds activations to eight bits, each is
// changed by at most half a step of its scale: 2^-4 of its size as a float of 3 bits, or 1/254 of
// the row's largest as an integer; `sensitivity` is the largest change of any logit per unit of
// random relative change of all weights, and errors of activations act as such a change of about
// 2^-4 / sqrt(3) each, at most four times that in all logits together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/golden_cases_testing.h"
#include "model/registry.h"
#include "model/single.h"
#include "model/unpack.h"
#include "tensor/device_memory.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string folder_of(const std::string& name) {
  return std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/" + name;
}

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
  const ModelConfig config = read_model_config(model_of(GetParam()));
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

// A copy of a checkpoint of safetensors that can be spoilt.
class Mutation {
 public:
  explicit Mutation(const std::string& name)
      : dir_(fs::temp_directory_path() / fmt::format("skiff_quantized_{}_{}", ::getpid(), name)) {
    config_ = read_json_file(folder_of(name) + "/config.json");
    std::ifstream in(folder_of(name) + "/model.safetensors", std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    const auto header = parse_safetensors(std::as_bytes(std::span(file)));
    for (const TensorEntry& t : header->tensors)
      tensors_.push_back({t.name, t.dtype, t.shape, file.substr(t.begin, t.end - t.begin)});
  }
  ~Mutation() { fs::remove_all(dir_); }

  testing::FileTensor& tensor(const std::string& name) {
    return *std::ranges::find(tensors_, name, &testing::FileTensor::name);
  }
  void drop(const std::string& name) {
    std::erase_if(tensors_, [&](const auto& t) { return t.name == name; });
  }
  Json& quantization() { return config_["quantization_config"]; }
  const std::vector<testing::FileTensor>& tensors() const { return tensors_; }
  std::string refusal() const {
    fs::remove_all(dir_);
    testing::write_file(dir_ / "config.json", config_.dump());
    testing::write_file(dir_ / "model.safetensors", testing::safetensors_bytes(tensors_));
    try {
      const auto ops = make_reference_ops();
      load_model(dir_.string(), read_model_config(dir_.string()),
                 {.precision = uniform_precision(DType::kF32), .progress = {}}, *ops);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "accepted";
  }

 private:
  fs::path dir_;
  Json config_;
  std::vector<testing::FileTensor> tensors_;
};

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
      if (is_note(t.name) || t.name == "ernie.embed_tokens.weight") continue;
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
      {"fastdeploy_wint4_tiles", "/quantization", "w4a8", "quantized to w4a8 are not supported"},
      {"fastdeploy_wint4_tiles", "/is_permuted", false, "wint4 with \"is_permuted\" false"},
      {"fastdeploy_mix_tiles", "/moe_quant_type", "wint8", "config.json asks for"},
      {"fastdeploy_mix_tiles", "/moe_quant_type", "w4a8", "quantized to w4a8 are not supported"},
      {"fastdeploy_wint2", "/dense_quant_type", "wint4", "config.json asks for"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_end_layer", 1, "U8"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_end_layer", -2,
       "\"quant_end_layer\" is -2"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w4_quant_config/quant_type", "w4a8", "w4a8"},
      {"fastdeploy_wint2", "/moe_quant_config/moe_w2_quant_config/quant_group_size", 128,
       "\"quant_group_size\" 64"},
      {"fastdeploy_wint8", "/is_quantized", false, "quant_weight"},
      {"ct_w4a16", "/config_groups/group_0/weights/num_bits", 3, "\"num_bits\" is 3"},
      {"ct_w4a16", "/config_groups/group_0/weights/num_bits", 4.5, "must be an integer"},
      {"ct_w4a16", "/config_groups/group_0/weights/symmetric", false, "weight_zero_point"},
      {"ct_w4a16", "/config_groups/group_0/weights/group_size", 16, "config.json asks for"},
      {"ct_w4a16", "/config_groups/group_0/format", "marlin-24", "\"format\" marlin-24"},
      {"ct_w4a16", "/config_groups/group_0/targets", Json::array({"re:("}), "no regular"},
      {"ct_w4a16", "/ignore", Json::array({"re:.*q_proj"}), "says otherwise"},
      {"ct_w4a16", "/sparsity_config", {{"format", "sparse-bitmask"}}, "\"sparsity_config\""},
      {"ct_w8a8", "/config_groups/group_0/weights/num_bits", 4, "\"num_bits\" is 4"},
      {"ct_fp8_dynamic", "/config_groups/group_0/input_activations/num_bits", 4, "8 bits"},
  };
  for (const FieldCase& c : cases) {
    Mutation mutation(c.checkpoint);
    mutation.quantization()[Json::json_pointer(c.pointer)] = c.value;
    EXPECT_THAT(mutation.refusal(), HasSubstr(c.said)) << c.checkpoint << c.pointer;
  }
}

TEST(QuantizedMutation, TablesOfScalesAreRefusedByName) {
  Mutation mutation("awq");
  mutation.quantization() = {{"quant_type", "a8w8"}, {"weight_quantize_algo", "a8w8"}};
  EXPECT_THAT(mutation.refusal(), AllOf(HasSubstr("PaddleNLP"), HasSubstr("weight_scales.json")));
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
