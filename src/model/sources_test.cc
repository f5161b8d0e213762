// Which tensors fill which slot, with quantized formats among them.
#include "model/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/formats/eight_bits.h"
#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A scale for each output, or for blocks.
StoredFormat int8(int block_out = 1, int block_in = 0) {
  return eight_bit_format({.name = "int8",
                           .dtype = DType::kI8,
                           .scales = ScaleOf::kBlock,
                           .block_out = block_out,
                           .block_in = block_in});
}

Quantization gptq() {
  static const Json kConfig = {{"quant_method", "gptq"}, {"bits", 4},
                               {"group_size", 16},       {"desc_act", false},
                               {"sym", false},           {"checkpoint_format", "gptq_v2"}};
  return read_gptq(Fields(kConfig, "config.json"));
}

class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest() {
    use({int8()});
    add("q.weight", "I8", {16, 32});
    add("q.weight_scale", "F32", {16, 1});
    add("k.weight", "I8", {8, 32});
    add("k.weight_scale", "F32", {8, 1});
    add("out.weight", "BF16", {32, 16});
    add("norm.weight", "F32", {32});
  }

  void add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape) {
    int64_t size = safetensors_bits(dtype);
    for (const int64_t n : shape) size *= n;
    std::erase_if(tensors_, [&](const testing::FileTensor& t) { return t.name == name; });
    tensors_.push_back(
        {name, dtype, std::move(shape), std::string(static_cast<size_t>(size) / 8, 'x')});
  }
  void remove(const std::string& name) {
    ASSERT_EQ(std::erase_if(tensors_, [&](const testing::FileTensor& t) { return t.name == name; }),
              1u);
  }
  const std::vector<Source>& find() {
    folder_.write("model.safetensors", testing::safetensors_bytes(tensors_));
    checkpoint_.emplace(folder_.dir());
    ModelSpec spec;
    spec.arch = "Test";
    return sources_ = find_sources(*checkpoint_, rules_, quantization_, slots_, spec);
  }
  std::string refusal() {
    try {
      find();
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }

  std::vector<NameRule> rules_ = {{"qk", "q|k"}, {"out", "out"}, {"norm", "norm"}};
  std::vector<Slot> slots_ = {
      {.kind = Slot::kLinear, .name = "qk", .out = 24, .in = 32, .parts = {16, 8}},
      {.kind = Slot::kLinear, .name = "out", .out = 32, .in = 16, .parts = {32}},
      {.kind = Slot::kNorm, .name = "norm", .out = 32, .parts = {32}}};
  void use(std::vector<StoredFormat> formats) {
    quantization_.rules = {{NamePattern(PatternKind::kAll, "", "test"), {}}};
    for (size_t i = 0; i < formats.size(); ++i) quantization_.rules[0].formats.push_back(i);
    quantization_.formats = std::move(formats);
  }
  // The tensor of that role of the module of a part.
  static const StoredTensor& tensor(const Source& source, size_t part, Role role) {
    return *source.module_of(source.parts[part]).of(role);
  }

  Quantization quantization_;
  testing::TestModel folder_{"Test"};
  std::vector<testing::FileTensor> tensors_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<Source> sources_;
};

TEST_F(SourcesTest, TensorsComeByRole) {
  const auto& sources = find();
  EXPECT_EQ(sources[0].format,
            (WeightFormat{.dtype = DType::kI8, .block_out = 1, .scale = DType::kF32}));
  ASSERT_EQ(sources[0].parts.size(), 2u);
  EXPECT_EQ(tensor(sources[0], 1, Role::kScale).entry->name, "k.weight_scale");
  EXPECT_EQ(sources[0].modules[0].of(Role::kZero), nullptr);
  EXPECT_EQ(sources[0].modules[0].of(Role::kBias), nullptr);
  EXPECT_EQ(sources[0].parts[1].region.rows, 8);
  EXPECT_EQ(sources[0].parts[1].region.cols, 32);
  EXPECT_EQ(sources[1].format, WeightFormat{DType::kBF16});  // a plain weight among others
  EXPECT_EQ(sources[2].format, WeightFormat{DType::kF32});
}

TEST_F(SourcesTest, BiasesAreFoundInEveryFormat) {
  slots_[0].bias = slots_[1].bias = true;
  add("q.bias", "F32", {16});
  add("k.bias", "F32", {8});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lacks 1 tensors"), HasSubstr("out.bias")));
  add("out.bias", "F16", {32});
  EXPECT_EQ(tensor(find()[0], 1, Role::kBias).entry->shape.at(0), 8);
  add("k.bias", "F32", {16});
  EXPECT_THAT(refusal(), HasSubstr("\"k.bias\" has shape [16], config.json asks for [8]"));
}

TEST_F(SourcesTest, ScalesMustBeThere) {
  remove("k.weight_scale");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lacks 1 tensors"), HasSubstr(": k.weight_scale")));
}

TEST_F(SourcesTest, ShapesOfScalesAreChecked) {
  add("k.weight_scale", "F32", {8});
  EXPECT_THAT(refusal(),
              HasSubstr("\"k.weight_scale\" has shape [8], config.json asks for [8, 1]"));
}

TEST_F(SourcesTest, DtypesOfScalesAreChecked) {
  add("k.weight_scale", "I16", {8, 1});
  EXPECT_THAT(refusal(), HasSubstr("\"k.weight_scale\" is I16; only F32, BF16, F16"));
}

TEST_F(SourcesTest, ScalesOfTwoDtypesAreWidened) {
  add("k.weight_scale", "BF16", {8, 1});
  EXPECT_EQ(find()[0].format.scale, DType::kF32);
}

TEST_F(SourcesTest, ScalesOfPlainWeightsAreLeftOver) {
  add("out.weight_scale", "F32", {32, 1});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("has 1 tensors that Test does not: out.weight_scale")));
}

TEST_F(SourcesTest, WeightsOfNoFormatAreRefusedByName) {
  add("out.weight", "F8_E4M3", {32, 16});
  EXPECT_THAT(refusal(), HasSubstr("\"out.weight\" is F8_E4M3; only I8, F32, F16, BF16 can be"));
  add("out.weight", "BF16", {32, 16});
  quantization_ = {};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"q.weight\" is I8; only F32, F16, BF16 can be loaded"),
                               HasSubstr("no \"quantization_config\"")));
}

TEST_F(SourcesTest, OnlyLinearLayersAreQuantized) {
  add("norm.weight", "I8", {32});
  add("norm.weight_scale", "F32", {32, 1});
  EXPECT_THAT(refusal(), HasSubstr("\"norm.weight\" is I8; only F32, F16, BF16 can be loaded"));
}

TEST_F(SourcesTest, PartsOfTwoFormatsAreWidened) {
  add("k.weight", "F32", {8, 32});
  remove("k.weight_scale");
  EXPECT_EQ(find()[0].format, WeightFormat{DType::kF32});
  EXPECT_TRUE(sources_[0].modules[0].format->quantized());
  EXPECT_FALSE(sources_[0].modules[1].format->quantized());
}

TEST_F(SourcesTest, BlocksAreCutWhereOtherRowsFollow) {
  use({int8(16, 20)});  // two blocks along the input, the last one partial
  add("q.weight_scale", "F32", {1, 2});
  add("k.weight_scale", "F32", {1, 2});
  EXPECT_EQ(find()[0].format.block_out, 16);
  EXPECT_EQ(sources_[0].format.block_in, 20);
  rules_[0].pattern = "k|q";  // and now 8 rows lie ahead of others
  slots_[0].parts = {8, 16};
  EXPECT_EQ(find()[0].format.block_out, 8);
}

TEST_F(SourcesTest, PackedElementsHaveADtypeOfTheirOwn) {
  quantization_ = gptq();
  rules_[0].pattern = "p";
  slots_[0].parts = {24};
  tensors_.clear();
  add("p.qweight", "I32", {4, 24});
  add("p.qzeros", "I32", {2, 3});
  add("p.scales", "F16", {2, 24});
  slots_.resize(1);
  EXPECT_EQ(find()[0].format, (WeightFormat{.dtype = DType::kU4,
                                            .block_out = 1,
                                            .block_in = 16,
                                            .scale = DType::kF16,
                                            .zero = DType::kU8}));
  EXPECT_EQ(tensor(sources_[0], 0, Role::kZero).entry->name, "p.qzeros");
  remove("p.qzeros");
  EXPECT_THAT(refusal(), HasSubstr(": p.qzeros"));
}

TEST_F(SourcesTest, QuantizedWeightsOfPlainLayersAreNamed) {
  quantization_ = gptq();
  quantization_.rules.insert(quantization_.rules.begin(),
                             {NamePattern(PatternKind::kName, "p", "config.json"), {}});
  quantization_.where = "config.json: quantization_config";
  rules_[0].pattern = "p";
  tensors_.clear();
  add("p.qweight", "I32", {4, 24});
  slots_.resize(1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lacks 1 tensors"), HasSubstr("it has p.qweight, but"),
                               HasSubstr("config.json: quantization_config says otherwise")));
}

// Where two formats read the same weight, the one whose other tensors are present is chosen.
TEST_F(SourcesTest, FormatsMayDifferInTheirScalesOnly) {
  use({int8(), eight_bit_format({.name = "blocks",
                                 .dtype = DType::kI8,
                                 .scales = ScaleOf::kBlock,
                                 .block_out = 8,
                                 .block_in = 16,
                                 .scale_suffixes = {".weight_scale_inv"}})});
  remove("q.weight_scale");
  remove("k.weight_scale");
  add("q.weight_scale_inv", "BF16", {2, 2});
  add("k.weight_scale_inv", "BF16", {1, 2});
  EXPECT_EQ(
      find()[0].format,
      (WeightFormat{.dtype = DType::kI8, .block_out = 8, .block_in = 16, .scale = DType::kBF16}));
}

// Shared experts that are stored as one wide expert are cut apart, scales with them.
class SharedExpertsTest : public SourcesTest {
 protected:
  SharedExpertsTest() {
    rules_ = {{"expert_gate_up", "e.{}.{}.gate|e.{}.{}.up"},
              {"expert_down", "e.{}.{}.down"},
              {"gate_up", "s.{}.gate|s.{}.up"},
              {"down", "s.{}.down"}};
    Slot stack{.layer = 0, .experts = 3, .always = 2};
    Slot up = stack, down = stack;
    up.name = "expert_gate_up";
    up.shared_name = "gate_up";
    up.out = 16;
    up.in = 32;
    up.parts = {8, 8};
    down.name = "expert_down";
    down.shared_name = "down";
    down.slices = Slot::kColumns;
    down.out = 32;
    down.in = 8;
    down.parts = {32};
    slots_ = {up, down};
    tensors_.clear();
    for (const std::string name : {"gate", "up"}) {
      add("e.0.0." + name + ".weight", "I8", {8, 32});
      add("s.0." + name + ".weight", "I8", {16, 32});
    }
    add("e.0.0.down.weight", "I8", {32, 8});
    add("s.0.down.weight", "I8", {32, 16});
  }
  void add_scales(int64_t block_out, int64_t block_in) {
    const auto blocks = [](int64_t n, int64_t block) {
      return block ? (n + block - 1) / block : 1;
    };
    for (const testing::FileTensor& t : std::vector(tensors_))
      add(t.name + "_scale", "F32", {blocks(t.shape[0], block_out), blocks(t.shape[1], block_in)});
    use({int8(static_cast<int>(block_out), static_cast<int>(block_in))});
  }
};

TEST_F(SharedExpertsTest, RowsAndColumnsAreCut) {
  add_scales(4, 0);
  const auto& sources = find();
  ASSERT_EQ(sources[0].parts.size(), 6u);  // gate and up of one chosen and two shared experts
  EXPECT_EQ(tensor(sources[0], 5, Role::kScale).entry->name, "s.0.up.weight_scale");
  EXPECT_EQ(sources[0].parts[5].region.row, 8);
  EXPECT_EQ(sources[0].parts[5].region.rows, 8);
  EXPECT_EQ(sources[0].format.block_out, 4);
  ASSERT_EQ(sources[1].parts.size(), 3u);
  EXPECT_EQ(sources[1].parts[2].region.col, 8);
  EXPECT_EQ(sources[1].parts[2].region.cols, 8);
  EXPECT_EQ(sources[1].parts[2].region.rows, 32);
  EXPECT_EQ(sources[1].format.block_in, 0);  // all inputs share a scale, those of a cut as well
}

// Blocks of 12 are cut at 8, which leaves blocks too small to be worth their scales.
TEST_F(SharedExpertsTest, CutsAcrossABlockAreWidened) {
  add_scales(1, 12);
  EXPECT_EQ(find()[1].format, WeightFormat{DType::kF32});
}

}  // namespace
}  // namespace skiff::model
