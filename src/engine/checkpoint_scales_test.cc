// What a checkpoint's own formats and scales make of the user's options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include "base/load_error.h"
#include "engine/backend.h"
#include "engine/resolve.h"
#include "model/model_testing.h"

namespace skiff::engine {
namespace {

using testing::TestModel;

class KvScaleOptions : public ::testing::Test {
 protected:
  KvFormat resolved(float scale, EngineConfig config = {}) {
    auto tensors = TestModel::llama_tensors();
    for (const char* layer : {"0", "1"})
      for (const char* half : {"k_scale", "v_scale"})
        tensors.push_back({std::string("model.layers.") + layer + ".self_attn." + half,
                           "F32",
                           {1},
                           testing::f32_bytes({scale})});
    folder_.write("model.safetensors", testing::safetensors_bytes(tensors));
    config.model = folder_.dir();
    config.quiet = true;
    config.device = "cpu";
    return resolve(config, read_model(config)).precision.kv;
  }

  TestModel folder_{"LlamaForCausalLM"};
};

TEST_F(KvScaleOptions, CalibratedScalesAreUsedUnlessTokensShouldHaveTheirOwn) {
  const KvFormat fp8{.dtype = DType::kF8E4M3, .fixed = true};
  const KvFormat int8{.dtype = DType::kI8, .fixed = true};
  EXPECT_EQ(resolved(0.25f, {.kv_dtype = DType::kF8E4M3}), fp8);
  EXPECT_EQ(resolved(0.25f, {.kv_dtype = DType::kI8}), int8);
  EXPECT_EQ(resolved(0.25f, {.kv_token_scales = true, .kv_dtype = DType::kI8}),
            KvFormat{DType::kI8});
  EXPECT_EQ(resolved(0.25f), KvFormat{DType::kF32});
}

TEST_F(KvScaleOptions, ScalesOfOneAreNotUsed) {
  EXPECT_EQ(resolved(1, {.kv_dtype = DType::kF8E4M3}), KvFormat{DType::kF8E4M3});
}

TEST_F(KvScaleOptions, WrongScalesAreRefusedOnlyWhereTheyAreUsed) {
  EXPECT_THROW(resolved(0, {.kv_dtype = DType::kI8}), LoadError);
  EXPECT_EQ(resolved(0, {.kv_token_scales = true, .kv_dtype = DType::kI8}), KvFormat{DType::kI8});
}

// wint4 means eight bits for all layers but the routed experts, and so for the shared ones.
TEST(ReadModel, KeepsSharedExpertsApartWhereTheirFormatIsAnother) {
  const TestModel folder("Ernie4_5_MoeForCausalLM", {{"moe_intermediate_size", 8},
                                                     {"moe_num_experts", 4},
                                                     {"moe_k", 2},
                                                     {"moe_num_shared_experts", 2}});
  const auto moe = [&](const std::string& quantization) {
    EngineConfig config;
    config.model = folder.dir();
    config.quantization = quantization;
    return std::get<Moe>(read_model(config).spec.layers.back().ffn);
  };
  EXPECT_EQ(moe("").router.always, 2);
  EXPECT_EQ(moe("wint8").router.always, 2);
  EXPECT_EQ(moe("wint4").router.always, 0);
  EXPECT_EQ(moe("wint4").shared_width, 16);
}

// Quantized weights of a checkpoint count as they are stored, in the plan and in the bytes that a
// step reads.
TEST(QuantizedCheckpointPlan, CountsStoredBytes) {
  EngineConfig config;
  config.model = std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/gptq";
  config.device = "cpu";
  const model::ModelConfig model = read_model(config);
  Resolved resolved = resolve(config, model);
  const auto ops = make_ops(resolved);
  const model::MemoryRequest native = memory_request(resolved, model.spec, *ops);
  const size_t kept = model::plan_memory(model.spec, native).weights;
  EXPECT_EQ(quantized_formats(resolved, model.spec, *ops).size(), 1u);
  resolved.stored.clear();
  const size_t widened =
      model::plan_memory(model.spec, memory_request(resolved, model.spec, *ops)).weights;
  EXPECT_LT(kept, widened * 3 / 4);
}

}  // namespace
}  // namespace skiff::engine
