// What the metadata of GGUF files mean, also where they say less than a config.json.
#include "model/gguf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/load_error.h"
#include "gguf/gguf_writer_testing.h"
#include "model/family.h"
#include "model/model_testing.h"
#include "model/registry.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The keys that every file has, and `more`, each behind the architecture's name. A null takes a key
// away.
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
    if (!value.is_null()) header.metadata[fmt::format("{}.{}", arch, key)] = value;
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

std::string refusal(const Json& more, const std::string& arch = "llama") {
  try {
    spec_of(arch, more);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

const Json kExperts = {
    {"expert_count", 8}, {"expert_used_count", 2}, {"expert_feed_forward_length", 12}};

const Gqa& attention(const ModelSpec& spec) { return std::get<Gqa>(spec.layers[0].mixer); }

TEST(GgufConfig, WeightsOfChosenExpertsSumToOne) {
  for (const char* arch : {"llama", "qwen3moe", "ernie4_5-moe"}) {
    const ModelSpec spec = spec_of(arch, kExperts);
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

// Families of config.json have other defaults: 8 heads, a theta of 1e6, two shared experts.
TEST(GgufConfig, AbsentKeysMeanWhatTheFormatSays) {
  Json keys = {{"attention.head_count_kv", nullptr}, {"rope.freq_base", nullptr}};
  for (const char* arch : {"llama", "qwen2", "qwen3", "ernie4_5"}) {
    const ModelSpec spec = spec_of(arch, keys);
    EXPECT_EQ(attention(spec).kv_heads, 4) << arch;
    EXPECT_EQ(attention(spec).head_dim, 4) << arch;
    EXPECT_EQ(attention(spec).rope.theta, 1e4f) << arch;
  }
  keys.update(kExperts);
  for (const char* arch : {"llama", "qwen3moe", "ernie4_5-moe", "deepseek"}) {
    const ModelSpec spec = spec_of(arch, keys);
    EXPECT_EQ(attention(spec).kv_heads, 4) << arch;
    EXPECT_EQ(attention(spec).rope.theta, 1e4f) << arch;
    const auto* moe = std::get_if<Moe>(&spec.layers[0].ffn);
    ASSERT_NE(moe, nullptr) << arch;
    EXPECT_EQ(moe->router.always, 0) << arch;
  }
}

TEST(GgufConfig, RopeOfAPartOfEachHeadIsRefused) {
  for (const char* arch : {"llama", "qwen3", "ernie4_5"}) {
    EXPECT_EQ(refusal({{"rope.dimension_count", 4}}, arch), "accepted");
    EXPECT_THAT(refusal({{"rope.dimension_count", 2}}, arch),
                AllOf(HasSubstr(fmt::format("\"{}.rope.dimension_count\" is 2", arch)),
                      HasSubstr("4 dimensions")));
  }
  EXPECT_EQ(refusal({{"rope.dimension_count", 8}, {"attention.key_length", 8}}), "accepted");
  EXPECT_THAT(refusal({{"rope.dimension_count", 4}, {"attention.key_length", 8}}),
              HasSubstr("rope.dimension_count"));
  EXPECT_THAT(refusal({{"rope.dimension_count", "4"}}), HasSubstr("rope.dimension_count"));
}

TEST(GgufConfig, MissingKeysAreNamedAsTheFileNamesThem) {
  for (const char* key :
       {"block_count", "embedding_length", "feed_forward_length", "context_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"})
    EXPECT_THAT(refusal({{key, nullptr}}),
                HasSubstr(fmt::format("test: \"llama.{}\" is missing", key)));
  for (const char* arch : {"qwen3moe", "ernie4_5-moe", "deepseek"})
    for (const char* key : {"expert_used_count", "expert_feed_forward_length"}) {
      Json keys = kExperts;
      keys[key] = nullptr;
      EXPECT_THAT(refusal(keys, arch), HasSubstr(fmt::format("\"{}.{}\" is missing", arch, key)));
    }
  GgufHeader header = header_of("llama", Json::object());
  header.tensors.clear();
  EXPECT_THAT([&] { config_of_gguf(header, "test"); },
              ::testing::ThrowsMessage<LoadError>(HasSubstr("\"token_embd.weight\" is missing")));
}

TEST(GgufConfig, KeysOfLatentAttentionAreNamedAsTheFileNamesThem) {
  const Json sizes = {{"attention.key_length", 12},
                      {"attention.value_length", 8},
                      {"attention.kv_lora_rank", 16},
                      {"rope.dimension_count", 4},
                      {"rope.scaling.type", "yarn"},
                      {"rope.scaling.factor", 40.0},
                      {"rope.scaling.yarn_log_multiplier", 0.1}};
  EXPECT_EQ(refusal(sizes, "deepseek2"), "accepted");
  for (const char* key :
       {"attention.key_length", "attention.value_length", "attention.kv_lora_rank",
        "rope.dimension_count", "rope.scaling.factor"}) {
    Json keys = sizes;
    keys[key] = nullptr;
    EXPECT_THAT(refusal(keys, "deepseek2"),
                HasSubstr(fmt::format("\"deepseek2.{}\" is missing", key)));
  }
}

// Files have keys for some end tokens, and others are known by their texts.
TEST(GgufConfig, TokensEndAReplyByTheirTextsToo) {
  GgufHeader header = header_of("llama", Json::object());
  header.metadata["tokenizer.ggml.eos_token_id"] = 2;
  header.metadata["tokenizer.ggml.tokens"] = {"a", "<|eot_id|>", "</s>", "<|im_end|>", "<|user|>"};
  EXPECT_EQ(config_of_gguf(header, "test").at("eos_token_id"), Json::array({2, 1, 3}));
  header.metadata["tokenizer.ggml.tokens"] = {
      "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "[EOT]", "[EOS]"};
  EXPECT_EQ(config_of_gguf(header, "test").at("eos_token_id"),
            Json::array({2, 0, 1, 2, 3, 4, 5, 6}));
  header.metadata["tokenizer.ggml.tokens"] = {1, 2};
  EXPECT_EQ(config_of_gguf(header, "test").at("eos_token_id"), Json::array({2}));
}

// A file without tensors but the embedding, read as a model's configuration.
ModelConfig config_of(const Json& metadata) {
  const testing::TestModel folder("LlamaForCausalLM");
  const testing::GgufFileTensor embed{
      .name = "token_embd.weight", .shape = {40, 16}, .data = std::string(2560, '\0')};
  folder.write("model.gguf", testing::gguf_bytes(metadata, {embed}));
  return read_model_config(folder.dir() + "/model.gguf");
}

TEST(GgufConfig, WrongValuesAreSaidToBeRead) {
  EXPECT_THAT(
      [] {
        config_of(header_of("llama", {{"block_count", 0}}).metadata);
      },
      ::testing::ThrowsMessage<LoadError>(
          HasSubstr("model.gguf, in the keys of a config.json: \"num_hidden_layers\" is 0")));
}

TEST(GgufConfig, SamplingIsAsTheFileRecommends) {
  Json metadata = header_of("llama", Json::object()).metadata;
  metadata.update({{"general.sampling.temp", 0.5},
                   {"general.sampling.top_k", 20},
                   {"general.sampling.top_p", 0.75},
                   {"general.sampling.min_p", 0.125},
                   {"general.sampling.penalty_repeat", 1.25}});
  const GenerationDefaults met = config_of(metadata).generation;
  EXPECT_TRUE(met.do_sample);
  EXPECT_EQ(met.temperature, 0.5f);
  EXPECT_EQ(met.top_k, 20);
  EXPECT_EQ(met.top_p, 0.75f);
  EXPECT_EQ(met.min_p, 0.125f);
  EXPECT_EQ(met.repetition, 1.25f);
}

TEST(GgufConfig, TypesAreListedByTheirBytes) {
  const auto tensor = [](const char* name, std::string_view type, uint64_t bytes) {
    return GgufTensor{.name = name, .type = type, .shape = {1}, .begin = 100, .end = 100 + bytes};
  };
  const GgufHeader header{.tensors = {tensor("a", "F32", 128), tensor("b", "Q6_K", 210),
                                      tensor("c", "F32", 128), tensor("d", "Q4_K", 1440)}};
  EXPECT_EQ(types_of_gguf(header), "Q4_K (1 tensors), F32 (2 tensors), Q6_K (1 tensors)");
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
