#include "arch/cost.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

const Gqa kAttention{.heads = 6, .kv_heads = 2, .head_dim = 10};

ModelSpec spec_of(std::vector<Layer> layers) {
  ModelSpec spec;
  spec.hidden = 50;
  spec.vocab = 300;
  spec.layers = std::move(layers);
  return spec;
}

TEST(Cost, KvElementsAreKeysAndValues) {
  const Layer small{.mixer = kAttention, .ffn = Dense{.width = 7}};
  const Layer large{.mixer = Gqa{.heads = 8, .kv_heads = 4, .head_dim = 16}, .ffn = Dense{}};
  EXPECT_EQ(kv_elements(small), 2 * 2 * 10);
  EXPECT_EQ(kv_elements(large), 2 * 4 * 16);
  EXPECT_EQ(kv_elements(spec_of({small, large, small})), 40 + 128 + 40);
}

TEST(Cost, AttentionCountsEveryHeadTwice) {
  const Layer layer{.mixer = kAttention, .ffn = Dense{.width = 7}};
  EXPECT_EQ(attention_flops(layer), 4 * 6 * 10);
  EXPECT_EQ(attention_flops(spec_of({layer, layer})), 2 * 4 * 6 * 10);
}

// q and o are 50 x 60, k and v 50 x 20, each of a dense layer's matrices 50 x 7; the head 300 x 50.
TEST(Cost, ParametersOfADenseModel) {
  const ModelSpec spec = spec_of({{.mixer = kAttention, .ffn = Dense{.width = 7}}});
  const double want = 2 * 50 * 60 + 2 * 50 * 20 + 3 * 50 * 7 + 300 * 50;
  EXPECT_EQ(active_parameters(spec), want);
  EXPECT_EQ(touched_parameters(spec, 100), want);
  EXPECT_EQ(doubling_context(spec), static_cast<int>(2 * want / (4 * 6 * 10)));
}

TEST(Cost, AttentionOfPromptsMayBeExpanded) {
  const Mla mla{.heads = 4, .kv_rank = 32, .nope_dim = 16, .rope_dim = 8, .v_dim = 12};
  const ModelSpec spec = spec_of({{.mixer = mla, .ffn = Dense{.width = 7}}});
  const double weights = 2 * active_parameters(spec);
  EXPECT_EQ(doubling_context(spec), static_cast<int>(weights / (2 * 4 * (40 + 32))));
  EXPECT_EQ(doubling_context(spec, LatentForm::kExpanded),
            static_cast<int>(weights / (2 * 4 * (24 + 12))));
}

TEST(Cost, OnlyChosenExpertsCount) {
  const Moe moe{.router = {.experts = 8, .top_k = 2, .always = 1}, .width = 5, .shared_width = 3};
  const ModelSpec spec = spec_of({{.mixer = kAttention, .ffn = moe}});
  const double around = 2 * 50 * 60 + 2 * 50 * 20 + 300 * 50 + 50 * (3 * 3 + 8);
  EXPECT_NEAR(active_parameters(spec), around + 50 * 3 * 5 * (2 + 1), 1e-6);
  // Two tokens miss an expert with probability (6/8)^2.
  EXPECT_NEAR(touched_parameters(spec, 2), around + 50 * 3 * 5 * (8 * (1 - 0.5625) + 1), 1e-6);
  EXPECT_NEAR(touched_parameters(spec, 1000), around + 50 * 3 * 5 * (8 + 1), 1e-6);
}

// DeepSeek-V3 has 187.1 M weights of attention in a layer, keeps 576 numbers of a token, and takes
// 2176 operations for each position and head.
TEST(Cost, LatentAttention) {
  Mla mla{.heads = 128, .q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64};
  mla.v_dim = 128;
  const Layer layer{.mixer = mla, .ffn = Dense{}};
  EXPECT_EQ(kv_elements(layer), 576);
  EXPECT_EQ(kv_shape(layer).tensors, 1);
  EXPECT_EQ(attention_flops(layer), 128 * 2176);
  ModelSpec spec = spec_of({layer});
  spec.hidden = 7168;
  spec.vocab = 0;
  EXPECT_EQ(active_parameters(spec), 187105280);
  mla.q_rank = 0;
  spec.layers = {{.mixer = mla, .ffn = Dense{}}};
  EXPECT_EQ(active_parameters(spec), 187105280 - 1536 * (7168 + 128 * 192) + 7168 * 128 * 192);
}

}  // namespace
}  // namespace skiff
