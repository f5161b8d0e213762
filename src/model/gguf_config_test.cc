// What the metadata of GGUF files mean, also where they say less than a config.json.
#include "model/gguf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/load_error.h"
#include "model/family.h"
#include "model/registry.h"

namespace skiff::model {
namespace {

using ::testing::HasSubstr;

// The keys that every file has, and `more`, each behind the architecture's name.
GgufHeader header_of(const std::string& arch, const Json& more) {
  Json keys = {{"block_count", 2},
               {"embedding_length", 16},
               {"feed_forward_length", 24},
               {"context_length", 128},
               {"attention.head_count", 4},
               {"attention.head_count_kv", 2},
               {"attention.layer_norm_rms_epsilon", 1e-6},
               {"rope.freq_base", 1e4}};
  keys.update(more);
  GgufHeader header;
  header.metadata["general.architecture"] = arch;
  for (const auto& [key, value] : keys.items())
    header.metadata[fmt::format("{}.{}", arch, key)] = value;
  header.tensors.push_back({.name = "token_embd.weight", .type = "F32", .shape = {40, 16}});
  return header;
}

ModelSpec spec_of(const std::string& arch, const Json& more) {
  const Json json = config_of_gguf(header_of(arch, more), "test");
  const Fields config(json, "test");
  const auto names = config.need<std::vector<std::string>>("architectures");
  return find_family(names.at(0))->describe(config);
}

RopeScaling scaling_of(const Json& more) {
  return std::get<Gqa>(spec_of("llama", more).layers[0].mixer).rope.scaling;
}

std::string refusal(const Json& more) {
  try {
    scaling_of(more);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

TEST(GgufConfig, WeightsOfChosenExpertsSumToOne) {
  for (const char* arch : {"llama", "qwen3moe", "ernie4_5-moe"}) {
    const ModelSpec spec = spec_of(
        arch, {{"expert_count", 8}, {"expert_used_count", 2}, {"expert_feed_forward_length", 12}});
    EXPECT_TRUE(std::get<Moe>(spec.layers.back().ffn).router.renorm) << arch;
  }
}

TEST(GgufConfig, RopeIsScaledLinearlyUnlessTheFileSaysOtherwise) {
  const RopeScaling four = LinearScaling{.factor = 4};
  EXPECT_EQ(scaling_of({{"rope.scaling.type", "linear"}, {"rope.scaling.factor", 4.0}}), four);
  EXPECT_EQ(scaling_of({{"rope.scaling.factor", 4.0}}), four);
  EXPECT_EQ(scaling_of({{"rope.scale_linear", 4.0}}), four);
  EXPECT_EQ(scaling_of({{"rope.scaling.type", "none"}, {"rope.scaling.factor", 4.0}}),
            RopeScaling());
  EXPECT_EQ(scaling_of({{"rope.scaling.factor", 1.0}}), RopeScaling());
  EXPECT_EQ(scaling_of(Json::object()), RopeScaling());
}

TEST(GgufConfig, OtherScalingsAreRefusedByName) {
  EXPECT_THAT(refusal({{"rope.scaling.type", "yarn"}, {"rope.scaling.factor", 4.0}}),
              HasSubstr("llama.rope.scaling.type"));
  EXPECT_THAT(refusal({{"rope.scaling.type", 7}, {"rope.scaling.factor", 4.0}}),
              HasSubstr("llama.rope.scaling.type"));
  EXPECT_THAT(refusal({{"rope.scaling.factor", "four"}}), HasSubstr("\"factor\""));
}

}  // namespace
}  // namespace skiff::model
