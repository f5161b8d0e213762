// Loading with --quantization: what is kept, in how much memory, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/finite.h"
#include "model/loader.h"
#include "model/memory_plan.h"
#include "model/model_testing.h"
#include "model/single.h"
#include "ops/reference/reference_ops.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::TestModel;

class QuantizedLoading : public ::testing::Test {
 protected:
  LoadedModel load(std::string_view scheme, Ops& ops, int threads = 2, size_t chunk = 4096) {
    model_.write("model.safetensors", testing::safetensors_bytes(tensors_));
    const ModelConfig config = model_.config();
    return load_model(model_.dir(), config,
                      {.precision = uniform_precision(DType::kF32),
                       .schemes = choose_schemes(scheme, "", config.spec),
                       .progress = {},
                       .threads = threads,
                       .chunk_bytes = chunk},
                      ops);
  }
  std::string refusal(std::string_view scheme, Ops& ops) {
    try {
      load(scheme, ops);
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  std::vector<float> logits(const LoadedModel& model, Ops& ops) {
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, ops, mesh, DType::kF32, 8, 8);
    const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7});
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

  TestModel model_{"LlamaForCausalLM"};
  std::vector<FileTensor> tensors_ = TestModel::llama_tensors();
  std::unique_ptr<Ops> reference_ = make_reference_ops(), cpu_ = make_cpu_ops(2);
};

// The bits of what is loaded do not depend on how it was read.
TEST_F(QuantizedLoading, IsTheSameInBandsOfAnySize) {
  for (const Scheme& scheme : schemes()) {
    const LoadedModel whole = load(scheme.name, *reference_, 1, size_t{1} << 30);
    const LoadedModel bands = load(scheme.name, *reference_, 3, 1);
    ASSERT_EQ(whole.bytes, bands.bytes);
    EXPECT_EQ(logits(whole, *reference_), logits(bands, *reference_)) << scheme.name;
  }
}

TEST_F(QuantizedLoading, KeepsTheLayersThatItShould) {
  const LoadedModel model = load("wint8", *cpu_);
  const auto& mixer = std::get<GqaWeights>(model.weights.layers[1].mixer);
  EXPECT_EQ(mixer.qkv.format, find_scheme("wint8")->format);
  EXPECT_EQ(mixer.out.format, find_scheme("wint8")->format);
  EXPECT_EQ(std::get<DenseWeights>(model.weights.layers[0].ffn).down.format,
            find_scheme("wint8")->format);
  EXPECT_EQ(model.weights.head.format, WeightFormat{DType::kF32});
  EXPECT_EQ(model.weights.embed.dtype, DType::kF32);
}

// Eight bits move a logit a little, four bits more; both backends compute the same model.
TEST_F(QuantizedLoading, ComputesNearlyTheSameModel) {
  const std::vector<float> plain = logits(load("", *cpu_), *cpu_);
  const auto distance = [&](const std::vector<float>& x, const std::vector<float>& y) {
    double sum = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += std::pow(x[i] - y[i], 2);
      size += std::pow(plain[i], 2);
    }
    return std::sqrt(sum / size);
  };
  for (const Scheme& scheme : schemes()) {
    const std::vector<float> met = logits(load(scheme.name, *cpu_), *cpu_);
    const std::vector<float> judged = logits(load(scheme.name, *reference_), *reference_);
    // Weights lose at most 1/2 of a step of 1/7 of their largest; logits about as much.
    const double most = bits(scheme.format.dtype) == 4 ? 0.5 : 0.1;
    EXPECT_LT(distance(met, plain), most) << scheme.name;
    EXPECT_GT(distance(met, plain), 0) << scheme.name;
    // Rounded activations may fall on either side of a tie.
    EXPECT_LT(distance(met, judged), scheme.format.input ? 0.02 : 1e-5) << scheme.name;
  }
}

TEST_F(QuantizedLoading, MemoryPlanMatchesWhatIsTaken) {
  for (const Scheme& scheme : schemes())
    for (Ops* ops : {reference_.get(), cpu_.get()}) {
      const LoadedModel model = load(scheme.name, *ops);
      const MemoryPlan plan =
          plan_memory(model.spec, {.ops = *ops,
                                   .precision = uniform_precision(DType::kF32),
                                   .schemes = choose_schemes(scheme.name, "", model.spec),
                                   .available = size_t{1} << 40});
      EXPECT_EQ(plan.weights, model.bytes) << scheme.name;
    }
}

TEST_F(QuantizedLoading, DummyWeightsOfAMixtureAreQuantizedToo) {
  const TestModel folder("Ernie4_5_MoeForCausalLM",
                         {{"moe_intermediate_size", 8}, {"moe_num_experts", 4}, {"moe_k", 2}});
  const ModelConfig config = folder.config();
  const SchemeChoice choice = choose_schemes("wint4", R"({"head": "wint8"})", config.spec);
  const LoadOptions options{.precision = uniform_precision(DType::kBF16),
                            .schemes = choice,
                            .format = LoadFormat::kDummy,
                            .dummy_seed = 3,
                            .progress = {}};
  const LoadedModel model = load_model(folder.dir(), config, options, *cpu_);
  const auto& moe = std::get<MoeWeights>(model.weights.layers.back().ffn);
  EXPECT_EQ(moe.gate_up.format.dtype, DType::kI4);
  EXPECT_EQ(moe.router.format, WeightFormat{DType::kF32});
  EXPECT_EQ(std::get<GqaWeights>(model.weights.layers[0].mixer).qkv.format.dtype, DType::kI8);
  EXPECT_EQ(model.weights.head.format.dtype, DType::kI8);
  const MemoryPlan plan = plan_memory(config.spec, {.ops = *cpu_,
                                                    .precision = options.precision,
                                                    .schemes = choice,
                                                    .available = size_t{1} << 40});
  EXPECT_EQ(plan.weights, model.bytes);
}

TEST_F(QuantizedLoading, WeightsThatAreNotFiniteAreRefusedByName) {
  FileTensor& bad = *std::ranges::find_if(tensors_, [](const FileTensor& t) {
    return t.name.ends_with("layers.1.mlp.up_proj.weight");
  });
  const float value = INFINITY;
  std::memcpy(&bad.data[20], &value, 4);
  for (Ops* ops : {reference_.get(), cpu_.get()})
    EXPECT_THAT(refusal("wint8", *ops),
                AllOf(HasSubstr("tensor model.layers.1.mlp.up_proj.weight"),
                      HasSubstr("not finite"), HasSubstr("column 5"), HasSubstr("--quantization")));
  EXPECT_EQ(refusal("", *cpu_), "accepted");
}

// A backend that multiplies integers only.
class IntegersOnly final : public reference::ReferenceOps {
 public:
  bool multiplies(const WeightFormat& format) const override {
    return format.dtype != DType::kF8E4M3 && ReferenceOps::multiplies(format);
  }
};

TEST_F(QuantizedLoading, FormatsThatTheBackendCannotMultiplyAreRefusedWithOthers) {
  IntegersOnly ops;
  EXPECT_THAT(refusal("block_wise_fp8", ops),
              AllOf(HasSubstr("--quantization block_wise_fp8"), HasSubstr("float8_e4m3"),
                    HasSubstr("choose from wint8, wint4, int4, a8w8")));
}

// FastDeploy's description of a KV cache, and ones that name no format of weights.
TEST(FastDeployConfig, MaySayNothingOfTheWeights) {
  for (const Json& said : {Json{{"kv_cache_quant_type", "int8"}}, Json{{"is_quantized", false}},
                           Json{{"quantization", "mix_quant"}, {"is_quantized", false}}}) {
    Json quantization = said;
    quantization["quant_method"] = "fastdeploy";
    const TestModel model("LlamaForCausalLM", {{"quantization_config", quantization}});
    EXPECT_EQ(model.config().quantization.method, "") << said;
  }
}

TEST(FindNotFinite, FindsTheFirst) {
  std::vector<float> x(5000, 1e38f);
  EXPECT_EQ(find_not_finite(x.data(), DType::kF32, 5000), std::nullopt);
  x[4097] = NAN, x[4999] = -INFINITY;
  EXPECT_EQ(find_not_finite(x.data(), DType::kF32, 5000), 4097);
  std::vector<F16> halves(7, to_f16(65504.0f));
  EXPECT_EQ(find_not_finite(halves.data(), DType::kF16, 7), std::nullopt);
  halves[6] = {0xfc00};
  EXPECT_EQ(find_not_finite(halves.data(), DType::kF16, 7), 6);
  std::vector<BF16> narrow(3, to_bf16(-1e38f));
  EXPECT_EQ(find_not_finite(narrow.data(), DType::kBF16, 3), std::nullopt);
  narrow[0] = to_bf16(NAN);
  EXPECT_EQ(find_not_finite(narrow.data(), DType::kBF16, 3), 0);
}

}  // namespace
}  // namespace skiff::model
