// Formats beside the plain one, which no family has yet, in tables of their own.
#include "model/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

StoredFormat plain() { return stored_formats().front(); }

// A scale for each output, or for blocks.
StoredFormat int8(int block_out = 1, int block_in = 0) {
  return {.name = "int8",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight"},
                       .dtypes = {"I8"},
                       .shape = shape_of_matrix},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"F32", "BF16"},
                       .shape = shape_of_blocks},
                      {.role = Role::kBias,
                       .suffixes = {".bias"},
                       .dtypes = {"F32"},
                       .shape = shape_of_outputs}},
          .block_out = block_out,
          .block_in = block_in};
}

// Eight elements to a word along the input, zero points along the output, as GPTQ stores them.
std::vector<int64_t> packed_inputs(const ModuleShape& module, const StoredFormat&) {
  return {module.in / 8, module.out};
}
std::vector<int64_t> turned_blocks(const ModuleShape& module, const StoredFormat& format) {
  return {module.in / format.block_in, module.out};
}
std::vector<int64_t> packed_zeros(const ModuleShape& module, const StoredFormat& format) {
  return {module.in / format.block_in, module.out / 8};
}
StoredFormat packed() {
  return {.name = "packed",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".qweight"},
                       .dtypes = {"I32"},
                       .shape = packed_inputs,
                       .packed = DType::kU4},
                      {.role = Role::kZero,
                       .suffixes = {".qzeros"},
                       .dtypes = {"I32"},
                       .shape = packed_zeros,
                       .packed = DType::kU4},
                      {.role = Role::kScale,
                       .suffixes = {".scales"},
                       .dtypes = {"F16"},
                       .shape = turned_blocks}},
          .block_out = 1,
          .block_in = 16};
}

class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest() {
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
    return sources_ = find_sources(*checkpoint_, rules_, formats_, slots_, spec);
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
  std::vector<StoredFormat> formats_ = {plain(), int8()};
  testing::TestModel folder_{"Test"};
  std::vector<testing::FileTensor> tensors_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<Source> sources_;
};

TEST_F(SourcesTest, TensorsComeByRole) {
  const auto& sources = find();
  EXPECT_EQ(sources[0].format,
            (WeightFormat{.dtype = DType::kI8, .block_out = 1, .scale = DType::kF32}));
  ASSERT_EQ(sources[0].of(Role::kWeight).size(), 2u);
  ASSERT_EQ(sources[0].of(Role::kScale).size(), 2u);
  EXPECT_TRUE(sources[0].of(Role::kZero).empty());
  EXPECT_TRUE(sources[0].of(Role::kBias).empty());
  const Piece& scale = sources[0].of(Role::kScale)[1];
  EXPECT_EQ(scale.tensor->entry->name, "k.weight_scale");
  EXPECT_EQ(scale.rows, 8);
  EXPECT_EQ(scale.cols, 1);
  EXPECT_EQ(sources[1].format, WeightFormat{DType::kBF16});  // a plain weight among others
  EXPECT_TRUE(sources[1].of(Role::kScale).empty());
  EXPECT_EQ(sources[2].format, WeightFormat{DType::kF32});
}

TEST_F(SourcesTest, BiasesAreFoundInEveryFormat) {
  slots_[0].bias = slots_[1].bias = true;
  add("q.bias", "F32", {16});
  add("k.bias", "F32", {8});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lacks 1 tensors"), HasSubstr("out.bias")));
  add("out.bias", "F16", {32});
  EXPECT_EQ(find()[0].of(Role::kBias)[1].elements(), 8);
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
  add("k.weight_scale", "F16", {8, 1});
  EXPECT_THAT(refusal(), HasSubstr("\"k.weight_scale\" is F16; only F32, BF16 can be loaded"));
}

TEST_F(SourcesTest, ScalesOfPlainWeightsAreLeftOver) {
  add("out.weight_scale", "F32", {32, 1});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("has 1 tensors that Test does not: out.weight_scale")));
}

TEST_F(SourcesTest, WeightsOfNoFormatAreRefusedByName) {
  add("out.weight", "F8_E4M3", {32, 16});
  EXPECT_THAT(refusal(), HasSubstr("\"out.weight\" is F8_E4M3; only F32, F16, BF16, I8 can be"));
  add("out.weight", "BF16", {32, 16});
  formats_ = stored_formats();
  EXPECT_THAT(refusal(), HasSubstr("\"q.weight\" is I8; only F32, F16, BF16 can be loaded"));
}

TEST_F(SourcesTest, OnlyLinearLayersAreQuantized) {
  add("norm.weight", "I8", {32});
  add("norm.weight_scale", "F32", {32, 1});
  EXPECT_THAT(refusal(), HasSubstr("\"norm.weight\" is I8; only F32, F16, BF16 can be loaded"));
}

TEST_F(SourcesTest, StackedWeightsMustBeAlike) {
  add("k.weight", "F32", {8, 32});
  remove("k.weight_scale");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"q.weight\" is int8 with a float32 scale"),
                               HasSubstr("\"k.weight\" is float32"), HasSubstr("must be alike")));
}

TEST_F(SourcesTest, StackedBlocksEndWithTheirWeight) {
  formats_[1] = int8(16, 20);  // two blocks along the input, the last one partial
  add("q.weight_scale", "F32", {1, 2});
  add("k.weight_scale", "F32", {1, 2});
  EXPECT_EQ(find()[0].of(Role::kScale)[1].cols, 2);
  rules_[0].pattern = "k|q";  // and now 8 rows lie ahead of others
  slots_[0].parts = {8, 16};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"k.weight\" has 8 rows"), HasSubstr("blocks of 16")));
}

TEST_F(SourcesTest, PackedElementsHaveADtypeOfTheirOwn) {
  formats_ = {plain(), packed()};
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
                                            .zero = DType::kU4}));
  EXPECT_EQ(sources_[0].of(Role::kZero)[0].tensor->entry->name, "p.qzeros");
  remove("p.qzeros");
  EXPECT_THAT(refusal(), HasSubstr(": p.qzeros"));
}

// Of two formats that read the same weight, the one whose other tensors are present is chosen.
TEST_F(SourcesTest, FormatsMayDifferInTheirScalesOnly) {
  StoredFormat blocks = int8(8, 16);
  blocks.tensors[1].suffixes = {".weight_scale_inv"};
  formats_.push_back(blocks);
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
    formats_[1] = int8(static_cast<int>(block_out), static_cast<int>(block_in));
  }
};

TEST_F(SharedExpertsTest, ScalesOfBlocksAreCutWithTheirRowsAndColumns) {
  add_scales(4, 8);
  const auto& sources = find();
  const auto& up = sources[0].of(Role::kScale);
  ASSERT_EQ(up.size(), 6u);  // gate and up of one chosen and two shared experts
  EXPECT_EQ(up[5].tensor->entry->name, "s.0.up.weight_scale");
  EXPECT_EQ(up[5].row, 2);
  EXPECT_EQ(up[5].rows, 2);
  EXPECT_EQ(up[5].cols, 4);
  const auto& down = sources[1].of(Role::kScale);
  ASSERT_EQ(down.size(), 3u);
  EXPECT_EQ(down[2].col, 1);
  EXPECT_EQ(down[2].cols, 1);
  EXPECT_EQ(down[2].rows, 8);
}

TEST_F(SharedExpertsTest, AScaleForAllInputsIsSharedByTheCuts) {
  add_scales(1, 0);
  const auto& down = find()[1].of(Role::kScale);
  for (const size_t i : {1u, 2u}) {
    EXPECT_EQ(down[i].col, 0);
    EXPECT_EQ(down[i].cols, 1);
    EXPECT_EQ(down[i].rows, 32);
  }
}

TEST_F(SharedExpertsTest, CutsAcrossABlockAreRefused) {
  add_scales(1, 12);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("s.0.down.weight_scale"), HasSubstr("blocks of 12")));
}

}  // namespace
}  // namespace skiff::model
