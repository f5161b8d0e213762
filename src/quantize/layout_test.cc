// Each layout, written and read back with the loader's own readers, bit for bit; and the words that
// the formats' authors document for known elements.
#include "quantize/layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "quantize/settings.h"
#include "weights/codes.h"

namespace skiff::quantize {
namespace {

Rounded row_of(DType dtype, const std::vector<int>& codes, std::optional<DType> zero = {}) {
  Rounded r = empty_rounded({.dtype = dtype,
                             .block_out = 1,
                             .block_in = 0,
                             .scale = DType::kF16,
                             .zero = zero,
                             .input = {}},
                            1, std::ssize(codes));
  for (size_t i = 0; i < codes.size(); ++i) r.codes[i] = static_cast<uint8_t>(codes[i]);
  return r;
}

uint32_t first_word(const std::vector<NewTensor>& tensors, const std::string& ending) {
  uint32_t word = 0;
  for (const NewTensor& t : tensors)
    if (t.name.ends_with(ending)) std::memcpy(&word, t.data.data(), sizeof(word));
  return word;
}

TEST(Layouts, PackKnownElements) {
  const std::vector<int> codes = {-8, -7, -1, 0, 1, 2, 6, 7};
  EXPECT_EQ(first_word(kCompressedTensorsLayout.tensors("m", row_of(DType::kI4, codes)),
                       ".weight_packed"),
            0xfea98710u);
  EXPECT_EQ(first_word(kCompressedTensorsLayout.tensors("m", row_of(DType::kI8, {-8, -7, -1, 0})),
                       ".weight_packed"),
            0x807f7978u);
}

TEST(Layouts, KeepFourBitsInBytesBesideRoundedActivations) {
  Rounded r = row_of(DType::kI4, {-8, -7, -1, 7});
  r.format.input = InputFormat{};
  EXPECT_EQ(first_word(kCompressedTensorsLayout.tensors("m", r), "m.weight"), 0x07fff9f8u);
}

// Eight outputs of one input each, with elements 0 to 7.
Rounded column(std::optional<DType> zero) {
  Rounded r = empty_rounded({.dtype = zero ? DType::kU4 : DType::kI4,
                             .block_out = 1,
                             .block_in = 0,
                             .scale = DType::kF16,
                             .zero = zero,
                             .input = {}},
                            8, 8);
  for (size_t n = 0; n < 8; ++n)
    for (size_t k = 0; k < 8; ++k) r.codes[n * 8 + k] = static_cast<uint8_t>(zero ? n : k - 8);
  for (size_t n = 0; n < 8; ++n)
    r.steps[n] = {.scale = 1, .zero = zero ? 7.0f - static_cast<float>(n) : 0};
  return r;
}

TEST(Layouts, PackAlongTheOtherDimension) {
  EXPECT_EQ(first_word(kGptqLayout.tensors("m", column({})), ".qweight"), 0x76543210u);
  EXPECT_EQ(first_word(kGptqLayout.tensors("m", column({})), ".qzeros"), 0x77777777u);
  EXPECT_EQ(first_word(kGptqLayout.tensors("m", column(DType::kU8)), ".qzeros"), 0x01234567u);
  EXPECT_EQ(first_word(kAwqLayout.tensors("m", column(DType::kU8)), ".qweight"), 0x75316420u);
}

// A reader divides the numbers of the tables by 127, in float32, and must find the scales again.
TEST(Layouts, PaddleNlpsTablesHoldTheScales) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> mantissa(1, 2);
  const WeightFormat format{.dtype = DType::kI8,
                            .block_out = 1,
                            .block_in = 0,
                            .scale = DType::kF32,
                            .zero = {},
                            .input = {}};
  ModuleScales module{.name = "llama.layers.0.mlp.down_proj", .outputs = {}, .largest_input = 2.5f};
  for (int i = 0; i < 100'000; ++i)
    module.outputs.push_back(step_for(format, 0, std::ldexp(mantissa(random), i % 60 - 40)).scale);
  const auto files = kPaddleNlpLayout.tables({.scales = {module}, .cache = {}});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "weight_scales.json");
  const auto weights = parse_json(files[0].text, {.max_bytes = 8u << 20, .max_keys = 1u << 20});
  ASSERT_TRUE(weights);
  const Json& numbers = weights->at("llama.layers.0.mlp.down_proj.weight_quanter");
  ASSERT_EQ(numbers.size(), module.outputs.size());
  for (size_t i = 0; i < module.outputs.size(); ++i)
    ASSERT_EQ(static_cast<float>(numbers[i].get<double>()) / 127.0f, module.outputs[i]) << i;
  const auto inputs = parse_json(files[1].text);
  ASSERT_TRUE(inputs);
  EXPECT_EQ(inputs->at("llama.layers.0.mlp.down_proj.activation_quanter"), 2.5f);
}

TEST(Layouts, TransposeByteForByte) {
  const NewTensor turned = transposed({.name = "m",
                                       .dtype = "I8",
                                       .shape = {2, 3},
                                       .data = {std::byte{1}, std::byte{2}, std::byte{3},
                                                std::byte{4}, std::byte{5}, std::byte{6}}});
  EXPECT_EQ(turned.shape, (std::vector<int64_t>{3, 2}));
  const std::vector<std::byte> want = {std::byte{1}, std::byte{4}, std::byte{2},
                                       std::byte{5}, std::byte{3}, std::byte{6}};
  EXPECT_EQ(turned.data, want);
}

TEST(Grid, HoldsZeroAndRoundsToTheNearestValue) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.5f, 1);
  for (const DType dtype : {DType::kI4, DType::kU4, DType::kI8, DType::kF8E4M3}) {
    WeightFormat format{.dtype = dtype,
                        .block_out = 1,
                        .block_in = 0,
                        .scale = DType::kBF16,
                        .zero = {},
                        .input = {}};
    if (dtype == DType::kU4) format.zero = DType::kU8;
    Matrix w(1, 64);
    for (float& x : w.values) x = normal(random);
    const Step step = covering_steps(w, format)[0];
    EXPECT_EQ(rounded_value(format, step, 0), 0);
    for (const float x : w.values) {
      const float mine = rounded_value(format, step, x);
      for (int code = 0; code < 256; ++code) {  // no element is nearer
        const auto byte = static_cast<uint8_t>(code);
        const bool exists = dtype == DType::kI4
                                ? static_cast<int8_t>(byte) >= -8 && static_cast<int8_t>(byte) <= 7
                            : dtype == DType::kU4 ? code <= 15
                            : dtype == DType::kI8 ? static_cast<int8_t>(byte) != -128
                                                  : (code & 0x7f) != 0x7f;
        if (!exists) continue;
        EXPECT_LE(std::abs(x - mine), std::abs(x - value_of(format, step, byte)) + 1e-6f);
      }
    }
  }
}

TEST(Grid, AWeightOfZerosStaysZero) {
  const WeightFormat format{.dtype = DType::kU4,
                            .block_out = 1,
                            .block_in = 16,
                            .scale = DType::kF16,
                            .zero = DType::kU8,
                            .input = {}};
  const Rounded r = round_with(Matrix(2, 32), format, covering_steps(Matrix(2, 32), format), 1);
  for (const float x : values_of(r).values) EXPECT_EQ(x, 0);
}

TEST(Settings, RoundAsTheFormatDoesBest) {
  EXPECT_TRUE(settle({.to = "gptq"}).compensate);
  EXPECT_TRUE(settle({.to = "awq"}).compensate);
  EXPECT_FALSE(settle({.to = "awq", .compensate = false}).compensate);
  EXPECT_FALSE(settle({.to = "w4a8"}).compensate);
  EXPECT_TRUE(settle({.to = "w4a8", .compensate = true}).compensate);
  EXPECT_FALSE(settle({.to = "w4a16"}).compensate);
}

TEST(Settings, RefuseWhatDoesNotGoTogether) {
  const auto message = [](const Request& request) -> std::string {
    try {
      settle(request);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message({.to = "w3a16"}).find("--to w3a16"), std::string::npos);
  EXPECT_NE(message({.to = "gptq", .layout = "exl2"}).find("--layout exl2"), std::string::npos);
  EXPECT_NE(message({.to = "fp8", .layout = "awq"}).find("--layout awq"), std::string::npos);
  EXPECT_NE(message({.to = "a8w8", .symmetric = false}).find("--symmetric"), std::string::npos);
  EXPECT_NE(message({.to = "gptq", .group_size = 24}).find("--group-size"), std::string::npos);
  EXPECT_NE(message({.to = "w4a8", .layout = "gptq"}).find("rounds activations"),
            std::string::npos);
  EXPECT_NE(message({.to = "gptq", .kv = DType::kI8}).find("KV cache"), std::string::npos);
  EXPECT_NE(message({.to = "gptq", .ignore = {"re:("}}).find("--ignore"), std::string::npos);
  EXPECT_NE(message({.to = "awq", .shift = true}).find("--shift"), std::string::npos);
  const std::string paddle = "paddlenlp";
  EXPECT_NE(message({.to = "a8w8", .layout = paddle, .shift = true}).find("--shift"),
            std::string::npos);
  EXPECT_NE(message({.to = "w8a16", .layout = paddle}).find("rounded activations"),
            std::string::npos);
  EXPECT_NE(message({.to = "w4a8", .layout = paddle}).find("8-bit integers"), std::string::npos);
  EXPECT_NE(message({.to = "a8w8", .layout = paddle, .ignore = {"lm_head"}}).find("--ignore"),
            std::string::npos);
  EXPECT_NE(message({.to = "a8w8", .layout = paddle, .kv = DType::kF8E4M3}).find("int8"),
            std::string::npos);
  EXPECT_EQ(message({.to = "a8w8", .layout = paddle, .kv = DType::kI8}), "");
  for (const Target& target : targets()) EXPECT_EQ(message({.to = std::string(target.name)}), "");
}

TEST(Settings, GroupsThatDoNotDivideBecomeRows) {
  const Settings settings = settle({.to = "gptq", .layout = "compressed-tensors"});
  EXPECT_EQ(settings.format_for(256).block_in, 128);
  EXPECT_EQ(settings.format_for(172).block_in, 0);
}

}  // namespace
}  // namespace skiff::quantize
