#include "model/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_testing.h"
#include "model/single.h"
#include "ops/reference/reference_ops.h"

namespace skiff::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestModel;

constexpr const char* kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";

ModelConfig read(const TestModel& model, const PoolingChoice& choice = {}) {
  return read_model_config(model.dir(), "config.json", choice);
}

std::string refusal(const TestModel& model, const PoolingChoice& choice = {}) {
  try {
    read(model, choice);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(Pooling, AModelGeneratesUnlessItSaysOtherwise) {
  const TestModel model("LlamaForCausalLM");
  EXPECT_FALSE(read(model).pooling);
  EXPECT_EQ(read(model).spec.head, HeadKind::kVocab);
  const ModelConfig embeds = read(model, {.runner = "pooling"});
  ASSERT_TRUE(embeds.pooling);
  EXPECT_EQ(embeds.pooling->task, PoolTask::kEmbed);
  EXPECT_EQ(embeds.pooling->rows, PoolRows::kLast);
  EXPECT_TRUE(embeds.pooling->normalize);
  EXPECT_EQ(embeds.spec.head, HeadKind::kNone);
  EXPECT_TRUE(read(model, {.convert = "embed"}).pooling) << "a conversion chooses the runner";
}

TEST(Pooling, FilesOfSentenceTransformersDecide) {
  const TestModel model("LlamaForCausalLM");
  model.write("modules.json", kModules);
  model.write("1_Pooling/config.json",
              R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})");
  const ModelConfig mean = read(model);
  ASSERT_TRUE(mean.pooling);
  EXPECT_EQ(mean.pooling->rows, PoolRows::kMean);
  EXPECT_FALSE(mean.pooling->normalize) << "there is no Normalize module";
  EXPECT_FALSE(read(model, {.runner = "generate"}).pooling);
  const ModelConfig flag = read(
      model, {.pooler = R"({"pooling_type": "CLS", "normalize": true, "is_matryoshka": true})"});
  EXPECT_EQ(flag.pooling->rows, PoolRows::kFirst);
  EXPECT_TRUE(flag.pooling->normalize && flag.pooling->matryoshka);

  model.write("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  EXPECT_EQ(read(model).pooling->rows, PoolRows::kLast);
  model.write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(refusal(model), HasSubstr("--override-pooler-config"));
  model.write("1_Pooling/config.json",
              R"({"pooling_mode_max_tokens": true, "pooling_mode_cls_token": true})");
  EXPECT_THAT(refusal(model), HasSubstr("several pooling modes"));
}

TEST(Pooling, ModulesThatAreNotSupportedAreRefused) {
  const auto refused = [](const char* modules) {
    SentenceModules out;
    try {
      read_modules(*parse_json(modules), "modules.json", out);
    } catch (const LoadError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(kModules), "");
  EXPECT_THAT(refused("{}"), HasSubstr("a list"));
  EXPECT_THAT(refused("[3]"), HasSubstr("no object"));
  EXPECT_THAT(refused(R"([{"type": "x.Dense", "path": "2_Dense"}])"), HasSubstr("x.Dense"));
  for (const char* path : {"../1_Pooling", "/etc", "", "a/../../b"})
    EXPECT_THAT(refused(fmt::format(R"([{{"type": "x.Pooling", "path": "{}"}}])", path).c_str()),
                HasSubstr("inside"))
        << path;
  SentenceModules out;
  read_modules(*parse_json(R"([{"type": "sentence_transformers.models.Normalize"}])"), "", out);
  EXPECT_TRUE(out.normalize);
}

TEST(Pooling, ClassifiersAreReadFromTheirConfig) {
  const TestModel two("LlamaForSequenceClassification");
  ASSERT_TRUE(read(two).pooling);
  EXPECT_EQ(read(two).pooling->task, PoolTask::kClassify);
  EXPECT_EQ(read(two).spec.classes, 2) << "the default of the library that wrote the file";
  EXPECT_THAT(refusal(two, {.runner = "generate"}), HasSubstr("without a language head"));

  const TestModel named("Qwen3ForSequenceClassification",
                        {{"id2label", {{"0", "bad"}, {"1", "good"}, {"2", "best"}}}});
  const ModelConfig config = read(named);
  EXPECT_THAT(config.pooling->labels, ElementsAre("bad", "good", "best"));
  EXPECT_EQ(config.spec.head, HeadKind::kClasses);
  EXPECT_EQ(config.spec.head_rows(), 3);
  EXPECT_FALSE(config.pooling->judges_pairs);
  EXPECT_EQ(read(named, {.convert = "reward"}).pooling->task, PoolTask::kReward);
  EXPECT_FALSE(read(named, {.convert = "reward"}).pooling->activation);

  const TestModel reranker("Qwen3ForSequenceClassification", {{"id2label", {{"0", "x"}}}});
  EXPECT_TRUE(read(reranker).pooling->judges_pairs);
}

TEST(Pooling, TokensStandForClassesWhereThereIsNoHead) {
  const TestModel model("Qwen3ForCausalLM", {{"head_dim", 4}});
  const ModelConfig config = read(model, {.convert = "classify"});
  EXPECT_THAT(config.pooling->tokens, ElementsAre("no", "yes"));
  EXPECT_TRUE(config.pooling->judges_pairs);
  EXPECT_EQ(config.spec.head, HeadKind::kVocab);
  EXPECT_THAT(refusal(model, {.convert = "reward"}), HasSubstr("--convert embed"));
  EXPECT_THAT(refusal(model, {.runner = "pooling", .convert = "none"}), HasSubstr("--convert"));
}

TEST(Pooling, TheFlagIsChecked) {
  const TestModel model("LlamaForCausalLM");
  const auto refused = [&](const char* flag) {
    return refusal(model, {.runner = "pooling", .pooler = flag});
  };
  EXPECT_THAT(refused("{"), HasSubstr("--override-pooler-config"));
  EXPECT_THAT(refused("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(refused(R"({"pooling": "LAST"})"), HasSubstr("there is no \"pooling\""));
  EXPECT_THAT(refused(R"({"pooling_type": "STEP"})"), HasSubstr("known: LAST, CLS, MEAN"));
  EXPECT_THAT(refused(R"({"matryoshka_dimensions": [8, 17]})"), HasSubstr("17"));
}

std::vector<testing::FileTensor> bare_tensors() {
  std::vector<testing::FileTensor> tensors = TestModel::llama_tensors();
  std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  for (testing::FileTensor& tensor : tensors) tensor.name = tensor.name.substr(6);  // "model."
  return tensors;
}

LoadedModel load(const TestModel& model, const PoolingChoice& choice = {}) {
  const auto ops = make_reference_ops();
  return load_model(model.dir(), read(model, choice), {.progress = {}}, *ops);
}

TEST(Pooling, CheckpointsWithoutAHeadLoad) {
  const TestModel bare("LlamaModel"), causal("LlamaForCausalLM");
  bare.write("model.safetensors", testing::safetensors_bytes(bare_tensors()));
  causal.write("model.safetensors", testing::safetensors_bytes(TestModel::llama_tensors()));
  const LoadedModel one = load(bare), other = load(causal, {.runner = "pooling"});
  EXPECT_EQ(one.bytes, other.bytes) << "the head is not loaded";
  EXPECT_LT(one.bytes, load(causal).bytes);
}

TEST(Pooling, AHeadOfClassesIsLoadedInFloat32) {
  const TestModel model("LlamaForSequenceClassification", {{"id2label", {{"0", "x"}}}});
  std::vector<testing::FileTensor> tensors = TestModel::llama_tensors();
  for (testing::FileTensor& tensor : tensors)
    if (tensor.name == "lm_head.weight")
      tensor = {"score.weight", "F32", {1, 16}, testing::f32_bytes(std::vector<float>(16, 0.5f))};
  model.write("model.safetensors", testing::safetensors_bytes(tensors));
  const LoadedModel loaded = load(model);
  EXPECT_EQ(loaded.weights.head.weight.dtype, DType::kF32);
  EXPECT_EQ(loaded.weights.head.weight.rows(), 1);
  load(model, {.convert = "embed"});  // leaves the head out
}

// The weights of a head of two layers, [16, 16] and [1, 16], with their biases.
struct TwoLayers {
  std::vector<float> inner, inner_bias, outer, outer_bias;

  TwoLayers() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (auto [values, count] : {std::pair(&inner, 256), std::pair(&inner_bias, 16),
                                 std::pair(&outer, 16), std::pair(&outer_bias, 1)})
      for (int i = 0; i < count; ++i) values->push_back(normal(random));
  }
  void add_to(std::vector<testing::FileTensor>& tensors) const {
    tensors.push_back({"score.0.weight", "F32", {16, 16}, testing::f32_bytes(inner)});
    tensors.push_back({"score.0.bias", "F32", {16}, testing::f32_bytes(inner_bias)});
    tensors.push_back({"score.2.weight", "F32", {1, 16}, testing::f32_bytes(outer)});
    tensors.push_back({"score.2.bias", "F32", {1}, testing::f32_bytes(outer_bias)});
  }
  double score(const float* row) const {
    double sum = static_cast<double>(outer_bias[0]);
    for (size_t i = 0; i < 16; ++i) {
      auto x = static_cast<double>(inner_bias[i]);
      for (size_t k = 0; k < 16; ++k)
        x += static_cast<double>(inner[i * 16 + k]) * static_cast<double>(row[k]);
      sum += std::max(x, 0.0) * static_cast<double>(outer[i]);
    }
    return sum;
  }
};

std::vector<float> logits_of(const TestModel& model) {
  const auto ops = make_reference_ops();
  const LoadedModel loaded =
      load_model(model.dir(), read(model),
                 {.precision = uniform_precision(DType::kF32), .progress = {}}, *ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(loaded, *ops, mesh, DType::kF32, 8, 8);
  const Tensor logits = sequence.forward(std::vector<int32_t>{3, 1, 4, 1, 5});
  return {logits.as<float>(), logits.as<float>() + logits.elements()};
}

// The rows are what a model with the identity for a head gives. A sum of 16 products of size one
// and a sum of 16 of those, in float32: at most 64 roundings of numbers below 64.
TEST(Pooling, AHeadOfTwoLayersScoresThroughRelu) {
  std::vector<testing::FileTensor> rows = TestModel::llama_tensors(), scored = rows;
  std::vector<float> identity(size_t{40} * 16, 0);
  for (size_t i = 0; i < 16; ++i) identity[i * 16 + i] = 1;
  for (testing::FileTensor& tensor : rows)
    if (tensor.name == "lm_head.weight") tensor.data = testing::f32_bytes(identity);
  std::erase_if(scored, [](const auto& t) { return t.name == "lm_head.weight"; });
  const TwoLayers head;
  head.add_to(scored);
  const TestModel causal("LlamaForCausalLM"), rewarder("LlamaForRewardModel");
  causal.write("model.safetensors", testing::safetensors_bytes(rows));
  rewarder.write("model.safetensors", testing::safetensors_bytes(scored));
  const std::vector<float> x = logits_of(causal), scores = logits_of(rewarder);
  ASSERT_EQ(scores.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(scores[i], head.score(x.data() + i * 40), 64 * 64 * 0x1p-24) << i;
    EXPECT_GT(std::abs(scores[i]), 0.01f);
  }
}

TEST(Pooling, RewardModelsAreReadFromTheirConfig) {
  const TestModel model("Qwen2ForRewardModel", {{"num_labels", 2}});
  const ModelConfig config = read(model);
  EXPECT_EQ(config.pooling->task, PoolTask::kReward);
  EXPECT_FALSE(config.pooling->activation);
  EXPECT_EQ(config.spec.head_rows(), 1);
  EXPECT_EQ(config.spec.score_width, 16);
  EXPECT_EQ(read(model, {.convert = "classify"}).pooling->task, PoolTask::kClassify);
  EXPECT_EQ(read(model, {.convert = "embed"}).spec.head, HeadKind::kNone);
  EXPECT_THAT(refusal(model, {.runner = "generate"}), HasSubstr("without a language head"));
}

TEST(Pooling, HeadsOfTwoLayersAreNotCutShort) {
  std::vector<testing::FileTensor> tensors = TestModel::llama_tensors();
  std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  TwoLayers().add_to(tensors);
  const TestModel model("LlamaForRewardModel");
  for (const std::string gone :
       {"score.0.weight", "score.0.bias", "score.2.weight", "score.2.bias"}) {
    std::vector<testing::FileTensor> fewer = tensors;
    std::erase_if(fewer, [&](const auto& t) { return t.name == gone; });
    model.write("model.safetensors", testing::safetensors_bytes(fewer));
    try {
      load(model);
      ADD_FAILURE() << "loads without " << gone;
    } catch (const LoadError& error) {
      EXPECT_THAT(error.what(), HasSubstr(gone.substr(0, gone.rfind('.'))));
    }
  }
  model.write("model.safetensors", testing::safetensors_bytes(tensors));
  load(model, {.convert = "embed"});  // leaves the head out
}

}  // namespace
}  // namespace skiff::model
