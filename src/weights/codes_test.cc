#include "weights/codes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "weights/quant_rule.h"

namespace skiff {
namespace {

TEST(E4m3, HasTheValuesOfThePaper) {
  EXPECT_EQ(from_e4m3(0x00), 0);
  EXPECT_TRUE(std::signbit(from_e4m3(0x80)));
  EXPECT_EQ(from_e4m3(0x01), 0x1p-9f);
  EXPECT_EQ(from_e4m3(0x07), 0x1.cp-7f);
  EXPECT_EQ(from_e4m3(0x08), 0x1p-6f);
  EXPECT_EQ(from_e4m3(0x38), 1);
  EXPECT_EQ(from_e4m3(0x7e), 448);
  EXPECT_EQ(from_e4m3(0xfe), -448);
  EXPECT_TRUE(std::isnan(from_e4m3(0x7f)) && std::isnan(from_e4m3(0xff)));
}

TEST(E4m3, RoundsToTheNearestCodeAndTiesToEven) {
  for (unsigned code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(to_e4m3(from_e4m3(static_cast<uint8_t>(code))), code);
    EXPECT_EQ(to_e4m3(from_e4m3(static_cast<uint8_t>(code | 0x80))), code | 0x80);
  }
  for (unsigned code = 0; code < 0x7e; ++code) {
    const float low = from_e4m3(static_cast<uint8_t>(code));
    const float high = from_e4m3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_e4m3(middle), code + code % 2) << middle;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(to_e4m3(std::nextafter(-middle, -1e9f)), code + 1 + 128);
  }
  EXPECT_EQ(to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(to_e4m3(-INFINITY), 0xfe);
  EXPECT_EQ(to_e4m3(465), 0x7e);
  EXPECT_EQ(to_e4m3(NAN), 0x7f);
  EXPECT_EQ(to_e4m3(1e-30f), 0);
}

TEST(Codes, AreReadAsTheirDtypeSays) {
  const std::array<uint8_t, 3> bytes = {0x8f, 0x72, 0xfe};
  const auto value = [&](DType dtype, int64_t i) { return code_value(bytes.data(), dtype, i); };
  EXPECT_EQ(value(DType::kI8, 0), -113);
  EXPECT_EQ(value(DType::kU8, 2), 254);
  EXPECT_EQ(value(DType::kI4, 0), -1);
  EXPECT_EQ(value(DType::kI4, 1), -8);
  EXPECT_EQ(value(DType::kU4, 4), 14);
  EXPECT_EQ(value(DType::kF4E2M1, 2), 1);
  EXPECT_EQ(value(DType::kF4E2M1, 3), 6);
  EXPECT_EQ(value(DType::kF4E2M1, 5), -6);
  EXPECT_EQ(value(DType::kF8E4M3, 2), -448);
}

TEST(Codes, AreStoredWithoutTouchingTheirNeighbours) {
  std::array<uint8_t, 2> bytes = {0xab, 0xcd};
  store_code(bytes.data(), DType::kI4, 1, static_cast<unsigned>(-3));
  EXPECT_EQ(bytes[0], 0xdb);
  store_code(bytes.data(), DType::kU4, 2, 5);
  EXPECT_EQ(bytes[1], 0xc5);
  store_code(bytes.data(), DType::kI8, 0, static_cast<unsigned>(-1));
  EXPECT_EQ(bytes[0], 0xff);
}

TEST(QuantRule, FitsTheFormatsThatItMakes) {
  const WeightFormat int4{.dtype = DType::kI4, .block_out = 1, .scale = DType::kBF16};
  EXPECT_TRUE(fits(QuantRule::kSignedExtreme, int4));
  EXPECT_FALSE(fits(QuantRule::kFloat8, int4));
  WeightFormat with_zero = int4;
  with_zero.zero = DType::kU4;
  EXPECT_FALSE(fits(QuantRule::kAbsMax, with_zero));
  EXPECT_FALSE(fits(QuantRule::kPaddle, {.dtype = DType::kI4}));
}

TEST(WeightFormat, HasMeaningOnlyWhereItsPartsFit) {
  const WeightFormat int8{.dtype = DType::kI8, .block_out = 1, .scale = DType::kF32};
  EXPECT_TRUE(has_meaning(int8));
  EXPECT_FALSE(has_meaning({.dtype = DType::kI8}));
  EXPECT_FALSE(has_meaning({.dtype = DType::kF16}));
  WeightFormat odd = int8;
  odd.scale = DType::kI8;
  EXPECT_FALSE(has_meaning(odd));
  odd = int8;
  odd.block_in = -1;
  EXPECT_FALSE(has_meaning(odd));
  odd = int8;
  odd.zero = DType::kI8;
  EXPECT_TRUE(has_meaning(odd));
  odd.input = InputFormat{};
  EXPECT_FALSE(has_meaning(odd));
  odd = int8;
  odd.dtype = DType::kF8E4M3;
  odd.zero = DType::kF32;
  EXPECT_FALSE(has_meaning(odd));
}

}  // namespace
}  // namespace skiff
