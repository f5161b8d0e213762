#include "model/schemes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/load_error.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelSpec dense() { return {.layers = {Layer{Gqa{}, Dense{.width = 8}}}}; }
ModelSpec mixture() { return {.layers = {Layer{Gqa{}, Dense{.width = 8}}, Layer{Gqa{}, Moe{}}}}; }

std::string refusal(std::string_view name, std::string_view config = "") {
  try {
    choose_schemes(name, config, dense());
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

TEST(Schemes, ANameCountsForAllLayersButTheHead) {
  const SchemeChoice choice = choose_schemes("int4", "", dense());
  for (const LayerKind kind : {LayerKind::kAttention, LayerKind::kDense, LayerKind::kExperts})
    EXPECT_EQ(choice.of(kind), find_scheme("int4"));
  EXPECT_EQ(choice.of(LayerKind::kHead), nullptr);
  EXPECT_FALSE(choose_schemes("", "", dense()).any());
  EXPECT_FALSE(choose_schemes("none", "", dense()).any());
}

TEST(Schemes, FourBitsOfPaddleLeaveTheOtherLayersOfAMixtureInEight) {
  const SchemeChoice mixed = choose_schemes("wint4", "", mixture());
  EXPECT_EQ(mixed.of(LayerKind::kExperts), find_scheme("wint4"));
  EXPECT_EQ(mixed.of(LayerKind::kDense), find_scheme("wint8"));
  EXPECT_EQ(mixed.of(LayerKind::kAttention), find_scheme("wint8"));
  EXPECT_EQ(mixed.describe(), "wint8 for attention, dense; wint4 for experts");
  EXPECT_EQ(choose_schemes("weight_only_int4", "", dense()).of(LayerKind::kDense),
            find_scheme("wint4"));
  EXPECT_EQ(choose_schemes("int4", "", mixture()).of(LayerKind::kDense), find_scheme("int4"));
}

TEST(Schemes, FourBitsOfPaddleMayStandBesideFloats) {
  const SchemeChoice mixed = choose_schemes("a8w8_fp8_wint4", "", mixture());
  EXPECT_EQ(mixed.of(LayerKind::kExperts), find_scheme("wint4"));
  EXPECT_EQ(mixed.of(LayerKind::kDense), find_scheme("block_wise_fp8"));
  EXPECT_EQ(mixed.of(LayerKind::kAttention), find_scheme("block_wise_fp8"));
  EXPECT_EQ(choose_schemes("a8w8_fp8_wint4", "", dense()),
            choose_schemes("block_wise_fp8", "", dense()));
  EXPECT_EQ(choose_schemes("a8w8_fp8", "", mixture()),
            choose_schemes("block_wise_fp8", "", mixture()));
}

// Experts have blocks, which the kernels of stacks multiply fastest.
TEST(Schemes, FloatsWithAScaleForEachOutputStandBesideBlocks) {
  for (const char* name : {"fp8", "wfp8afp8"}) {
    const SchemeChoice mixed = choose_schemes(name, "", mixture());
    EXPECT_EQ(mixed.of(LayerKind::kExperts), find_scheme("block_wise_fp8"));
    EXPECT_EQ(mixed.of(LayerKind::kDense), find_scheme("fp8"));
    EXPECT_EQ(mixed.of(LayerKind::kAttention), find_scheme("fp8"));
    EXPECT_EQ(choose_schemes(name, "", dense()).of(LayerKind::kDense), find_scheme("fp8"));
  }
  EXPECT_EQ(choose_schemes("", R"({"experts": "fp8"})", mixture()).of(LayerKind::kExperts),
            find_scheme("fp8"));
  EXPECT_EQ(find_scheme("fp8")->format_for(172),
            (WeightFormat{DType::kF8E4M3,
                          1,
                          0,
                          DType::kF32,
                          {},
                          InputFormat{DType::kF8E4M3, InputFormat::kToken}}));
}

TEST(Schemes, FourBitsWithRoundedInputsLeaveTheOtherLayersOfAMixtureInEight) {
  const SchemeChoice mixed = choose_schemes("w4a8", "", mixture());
  EXPECT_EQ(mixed.of(LayerKind::kExperts), find_scheme("w4a8"));
  EXPECT_EQ(mixed.of(LayerKind::kDense), find_scheme("a8w8"));
  EXPECT_EQ(mixed.of(LayerKind::kAttention), find_scheme("a8w8"));
  EXPECT_EQ(choose_schemes("w4a8", "", dense()).of(LayerKind::kDense), find_scheme("w4a8"));
  const InputFormat tokens{DType::kI8, InputFormat::kToken};
  EXPECT_EQ(find_scheme("w4a8")->format_for(192),
            (WeightFormat{DType::kI4, 1, 0, DType::kF32, {}, tokens}));
}

TEST(Schemes, TheConfigurationChangesWhatTheNameSays) {
  const SchemeChoice choice = choose_schemes(
      "wint8", R"({"experts": "int4", "attention": "none", "head": "wint8"})", mixture());
  EXPECT_EQ(choice.of(LayerKind::kExperts), find_scheme("int4"));
  EXPECT_EQ(choice.of(LayerKind::kAttention), nullptr);
  EXPECT_EQ(choice.of(LayerKind::kDense), find_scheme("wint8"));
  EXPECT_EQ(choice.of(LayerKind::kHead), find_scheme("wint8"));
}

TEST(Schemes, MixQuantIsThatOfFastDeploy) {
  const SchemeChoice choice = choose_schemes(
      R"({"quantization": "mix_quant", "dense_quant_type": "wint8", "moe_quant_type": "wint4"})",
      "", mixture());
  EXPECT_EQ(choice, choose_schemes("wint4", "", mixture()));
}

TEST(Schemes, UnknownNamesAndKeysAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("wint5"), AllOf(HasSubstr("--quantization is \"wint5\""),
                                      HasSubstr("did you mean wint"), HasSubstr("block_wise_fp8")));
  EXPECT_THAT(refusal("gguf_q9_x"), AllOf(HasSubstr("which is not there; known are wint8")));
  EXPECT_THAT(refusal("", R"({"dense_quant_config": "wint8"})"),
              AllOf(HasSubstr("unknown key \"dense_quant_config\""),
                    HasSubstr("did you mean dense_quant_type")));
  EXPECT_THAT(refusal("", R"({"dense": 8})"), HasSubstr("\"dense\" is 8"));
  EXPECT_THAT(refusal("", R"({"dense": "int8"})"), HasSubstr("\"dense\" is \"int8\""));
  EXPECT_THAT(refusal("", "[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("", "{"), HasSubstr("not a JSON object"));
}

TEST(Schemes, GroupsFitTheInputs) {
  const Scheme& int4 = *find_scheme("int4");
  EXPECT_EQ(int4.format_for(1024)->block_in, 128);
  EXPECT_EQ(int4.format_for(192)->block_in, 64);
  EXPECT_EQ(int4.format_for(172)->block_in, 0);
  EXPECT_EQ(int4.format_for(33), std::nullopt);
  EXPECT_EQ(find_scheme("block_wise_fp8")->format_for(172)->block_in, 128);
  EXPECT_EQ(find_scheme("wint8")->format_for(33)->block_in, 0);
}

TEST(Schemes, FormatsFitTheirRules) {
  for (const Scheme& scheme : schemes()) {
    EXPECT_TRUE(has_meaning(scheme.format)) << scheme.name;
    EXPECT_TRUE(fits(scheme.rule, scheme.format)) << scheme.name;
  }
}

}  // namespace
}  // namespace skiff::model
