// Whole models as GGUF files: they compute what the same weights in safetensors do.
#include <gmock/gmock.h>

#include <algorithm>

#include "model/gguf_models_testing.h"

namespace skiff::model {
namespace {

using testing::Both;
using testing::gguf_layer;
using testing::kExperts;
using testing::kHidden;
using testing::kLayers;
using testing::kWidth;
using testing::metadata_of;
using testing::sizes;
using testing::torch_layer;
using testing::TwoForms;

Both mixtral(bool apart) {
  Both model{.arch = "MixtralForCausalLM",
             .config = sizes(),
             .metadata = metadata_of("llama", {{"feed_forward_length", 32u}}),
             .weights = {}};
  model.config.update(
      {{"num_local_experts", kExperts}, {"num_experts_per_tok", 2}, {"intermediate_size", kWidth}});
  TwoForms& w = model.weights;
  testing::add_outside(w);
  for (int i = 0; i < kLayers; ++i) {
    testing::add_attention(w, i);
    const std::string torch = torch_layer(i) + "block_sparse_moe.";
    w.both(torch + "gate", gguf_layer(i) + "ffn_gate_inp", kExperts, kHidden);
    testing::add_experts(w, torch, gguf_layer(i), apart, {"w1", "w3", "w2"});
  }
  return model;
}

TEST(GgufModel, MixtralIsLlamaWithExperts) { mixtral(false).expect_same(); }
TEST(GgufModel, ExpertsMayHaveTensorsOfTheirOwn) { mixtral(true).expect_same(); }

// The file itself says what it must hold.
TEST(GgufModel, TensorsThatDoNotFitAreAskedForByTheFile) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  Both model = mixtral(false);
  auto& tensors = model.weights.gguf_tensors(false);
  const auto lost =
      std::ranges::find(tensors, "output_norm.weight", &testing::GgufFileTensor::name);
  ASSERT_NE(lost, tensors.end());
  lost->shape = {kHidden / 2};
  lost->data.resize(lost->data.size() / 2);
  EXPECT_THAT(model.refusal(), AllOf(HasSubstr("\"output_norm.weight\" has shape"),
                                     HasSubstr("model.gguf asks for [32]")));
  tensors.erase(lost);
  EXPECT_THAT(model.refusal(), AllOf(HasSubstr("lacks 1 tensors that"), HasSubstr("model.gguf ("),
                                     HasSubstr("output_norm.weight")));
}

TEST(GgufModel, MayBeInParts) {
  Both model = mixtral(false);
  const std::vector<float> factors = {1, 1, 2, 4};
  for (const bool eight : {false, true})
    model.weights.gguf_tensors(eight).push_back(
        {"rope_freqs.weight", 0, {4}, testing::f32_bytes(factors)});
  EXPECT_EQ(model.of_parts(), model.of_gguf(true));
}

}  // namespace
}  // namespace skiff::model
