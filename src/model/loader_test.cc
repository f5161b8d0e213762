#include "model/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/memory_plan.h"
#include "model/model_testing.h"
#include "model/single.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::TestModel;

class LoaderTest : public ::testing::Test {
 protected:
  LoadedModel load(const LoadOptions& options = {.progress = {}}) {
    model_.write("model.safetensors", testing::safetensors_bytes(tensors_));
    return load_model(model_.dir(), model_.config(), options, *ops_);
  }
  std::string refusal() {
    try {
      load();
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  FileTensor& tensor(const std::string& name) {
    return *std::ranges::find(tensors_, name, &FileTensor::name);
  }
  std::vector<float> logits(const LoadedModel& model) {
    const std::vector<int32_t> tokens = {1, 5, 39, 7};
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, *ops_, mesh, DType::kF32, 8, 8);
    const Tensor out = sequence.forward(tokens);
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

  TestModel model_{"LlamaForCausalLM"};
  std::vector<FileTensor> tensors_ = TestModel::llama_tensors();
  std::unique_ptr<Ops> ops_ = make_reference_ops();
};

TEST_F(LoaderTest, ReportsProgressInBytes) {
  std::vector<uint64_t> done;
  uint64_t total = 0;
  load({.progress = [&](uint64_t d, uint64_t t) { done.push_back(d), total = t; }});
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), total);
  size_t stored = 0;
  for (const FileTensor& t : tensors_) stored += t.data.size();
  EXPECT_EQ(total, stored);
}

TEST_F(LoaderTest, MissingTensorsAreNamedAndCounted) {
  std::erase_if(tensors_,
                [](const FileTensor& t) { return t.name.find("up_proj") != std::string::npos; });
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("lacks 2 tensors"), HasSubstr("model.layers.0.mlp.up_proj.weight"),
                    HasSubstr("model.layers.1.mlp.up_proj.weight")));
}

TEST_F(LoaderTest, LeftOverTensorsAreNamedAndCounted) {
  tensors_.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {16}, std::string(64, '1')});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("has 1 tensors that LlamaForCausalLM does not"),
                               HasSubstr("q_proj.bias")));
}

TEST_F(LoaderTest, HarmlessExtrasAreIgnored) {
  tensors_.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, std::string(8, '1')});
  tensors_.push_back({"model.mtp_block.0.mlp.up_proj.weight", "F32", {2}, std::string(8, '1')});
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(LoaderTest, PaddedVocabularyIsRefusedWithBothNumbers) {
  FileTensor& embed = tensor("model.embed_tokens.weight");
  embed.shape[0] = 48;
  embed.data.resize(size_t{48} * 16 * 4, '1');
  EXPECT_THAT(refusal(), AllOf(HasSubstr("48 rows"), HasSubstr("\"vocab_size\" 40")));
}

TEST_F(LoaderTest, WrongShapeIsNamed) {
  tensor("model.layers.1.mlp.down_proj.weight").shape = {24, 16};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight"),
                               HasSubstr("[24, 16]"), HasSubstr("[16, 24]")));
}

TEST_F(LoaderTest, UnreadableDtypeIsNamed) {
  FileTensor& down = tensor("model.layers.1.mlp.down_proj.weight");
  down.dtype = "F8_E4M3";
  down.data.resize(size_t{16} * 24);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("down_proj"), HasSubstr("F8_E4M3"), HasSubstr("BF16")));
}

TEST_F(LoaderTest, UnalignedDataIsReadAlike) {
  const auto aligned = logits(load());
  // A tensor of one byte ahead of all others in the file moves them to odd addresses; the name
  // makes it one that is skipped.
  tensors_.insert(tensors_.begin(), {"mtp_odd", "U8", {1}, "x"});
  EXPECT_EQ(logits(load()), aligned);
}

TEST_F(LoaderTest, MixedDtypesInOneSlot) {
  const auto before = logits(load());
  FileTensor& k = tensor("model.layers.0.self_attn.k_proj.weight");
  std::string bf16;
  for (size_t i = 0; i < k.data.size(); i += 4) bf16 += k.data.substr(i + 2, 2);  // cut to bf16
  k.dtype = "BF16";
  k.data = bf16;
  const auto after = logits(load());
  double difference = 0;
  for (size_t i = 0; i < before.size(); ++i)
    difference = std::max(difference, std::abs(double{before[i]} - after[i]));
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.1);
}

TEST_F(LoaderTest, StoredHeadOfATiedModelIsIgnored) {
  TestModel tied("LlamaForCausalLM", {{"tie_word_embeddings", true}});
  tied.write("model.safetensors", testing::safetensors_bytes(tensors_));
  const auto with = logits(load_model(tied.dir(), tied.config(), {.progress = {}}, *ops_));
  std::erase_if(tensors_, [](const FileTensor& t) { return t.name == "lm_head.weight"; });
  tied.write("model.safetensors", testing::safetensors_bytes(tensors_));
  EXPECT_EQ(logits(load_model(tied.dir(), tied.config(), {.progress = {}}, *ops_)), with);
}

// The same in any pieces, in dummy weights too.
TEST(DummyWeights, AreDrawnAlikeInPieces) {
  const auto ops = make_cpu_ops(1);
  const TestModel folder("Ernie4_5_MoeForCausalLM",
                         {{"moe_intermediate_size", 8}, {"moe_num_experts", 4}, {"moe_k", 2}});
  const auto run = [&](int threads, size_t chunk) {
    const LoadedModel model = load_model(folder.dir(), folder.config(),
                                         {.format = LoadFormat::kDummy,
                                          .dummy_seed = 4,
                                          .progress = {},
                                          .threads = threads,
                                          .chunk_bytes = chunk},
                                         *ops);
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, *ops, mesh, DType::kF32, 8, 8);
    const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7});
    return std::vector<float>(out.as<float>(), out.as<float>() + out.elements());
  };
  EXPECT_EQ(run(3, 1), run(1, size_t{1} << 30));
}

TEST_F(LoaderTest, MemoryPlanMatchesWhatIsTaken) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto cpu = make_cpu_ops(1);
    model_.write("model.safetensors", testing::safetensors_bytes(tensors_));
    const LoadedModel model =
        load_model(model_.dir(), model_.config(),
                   {.precision = uniform_precision(compute), .progress = {}}, *cpu);
    const MemoryPlan plan = plan_memory(
        model.spec,
        {.ops = *cpu, .precision = uniform_precision(compute), .available = size_t{1} << 40});
    EXPECT_EQ(plan.weights, model.bytes);
  }
}

TEST_F(LoaderTest, FormatsThatTheBackendCannotMultiplyAreRefused) {
  Precision precision;
  precision.weights = {.dtype = DType::kI64, .block_out = 1, .scale = DType::kF32};
  try {
    load({.precision = precision, .progress = {}});
    ADD_FAILURE() << "loaded";
  } catch (const LoadError& e) {
    EXPECT_STREQ(e.what(),
                 "the reference backend cannot multiply weights kept as int64 with a float32 scale "
                 "for each 1 x all");
  }
}

// Routers, norms and tables do not follow the format of the weights of linear layers.
TEST_F(LoaderTest, WeightsSayWhatTheyAreKeptIn) {
  Precision precision = uniform_precision(DType::kF32);
  precision.weights = {.dtype = DType::kBF16};
  const LoadedModel model = load({.precision = precision, .progress = {}});
  EXPECT_EQ(std::get<GqaWeights>(model.weights.layers[1].mixer).qkv.format, precision.weights);
  EXPECT_EQ(std::get<GqaWeights>(model.weights.layers[1].mixer).qkv.weight.dtype, DType::kBF16);
  EXPECT_EQ(model.weights.head.format, precision.weights);
  EXPECT_EQ(model.weights.embed.dtype, DType::kF32);
  EXPECT_EQ(model.weights.norm.weight.dtype, DType::kF32);
}

TEST(DummyWeights, AreDeterministicAndNeverDull) {
  const auto ops = make_cpu_ops(1);
  for (const char* arch : {"LlamaForCausalLM", "Qwen2ForCausalLM", "Ernie4_5_MoeForCausalLM"}) {
    const TestModel folder(arch,
                           {{"moe_intermediate_size", 8}, {"moe_num_experts", 4}, {"moe_k", 2}});
    const auto run = [&](uint64_t seed, DType compute) {
      const LoadedModel model = load_model(folder.dir(), folder.config(),
                                           {.precision = uniform_precision(compute),
                                            .format = LoadFormat::kDummy,
                                            .dummy_seed = seed,
                                            .progress = {}},
                                           *ops);
      comm::Mesh mesh = comm::make_solo_mesh();
      SingleSequence sequence(model, *ops, mesh, compute, 8, 8);
      const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7});
      return std::vector<float>(out.as<float>(), out.as<float>() + out.elements());
    };
    const auto first = run(1, DType::kF32);
    EXPECT_EQ(run(1, DType::kF32), first);
    EXPECT_NE(run(2, DType::kF32), first);
    EXPECT_NE(run(1, DType::kBF16), first);
    EXPECT_EQ(std::set<float>(first.begin(), first.end()).size(), first.size()) << arch;
    for (float x : first) EXPECT_LT(std::abs(x), 100) << arch;
  }
}

}  // namespace
}  // namespace skiff::model
