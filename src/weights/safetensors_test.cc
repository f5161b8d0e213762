#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "weights/safetensors_writer_testing.h"

namespace skiff {
namespace {

using testing::f32_bytes;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::safetensors_file;

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)));
}

std::string refusal(const std::string& file) {
  const auto header = parse(file);
  return header ? "accepted" : header.error().what;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

// One tensor "w" with these fields over `bytes` bytes of data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t bytes) {
  return safetensors_file(R"({"w":)" + entry(dtype, shape, offsets) + "}", std::string(bytes, 'x'));
}

std::string valid_file() {
  return safetensors_bytes({{"a", "F32", {2, 3}, f32_bytes({1, 2, 3, 4, 5, 6})},
                            {"b.bias", "BF16", {4}, "12345678"},
                            {"c", "I64", {}, "12345678"},
                            {"empty", "F16", {0, 5}, ""}});
}

TEST(Safetensors, ReadsNamesShapesAndRanges) {
  const std::string file = valid_file();
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().what;
  ASSERT_EQ(header->tensors.size(), 4u);
  const TensorEntry& a = header->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  float third = 0;
  std::memcpy(&third, file.data() + a.begin + 8, 4);
  EXPECT_EQ(third, 3);
  EXPECT_EQ(header->tensors.back().end, file.size());
}

TEST(Safetensors, MetadataAndTrailingSpacesAreAllowed) {
  const std::string header =
      R"({"__metadata__":{"format":"pt","note":"x"},"w":)" + entry("F32", "[1]", "[0,4]") + "}   ";
  EXPECT_TRUE(parse(safetensors_file(header, "abcd")));
  EXPECT_TRUE(parse(safetensors_file("{}", "")));
}

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  const std::string file = valid_file();
  for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(parse(file.substr(0, n))) << n << " bytes";
}

TEST(Safetensors, HeaderLengthLies) {
  std::string file = valid_file();
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{file.size() - 7},
                                uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_THAT(refusal(file), HasSubstr("header length")) << length;
  }
}

TEST(Safetensors, OverlapsAndGapsAreRefused) {
  const auto two = [](const std::string& first, const std::string& second) {
    return safetensors_file(R"({"a":)" + first + R"(,"b":)" + second + "}", std::string(12, 'x'));
  };
  EXPECT_THAT(refusal(two(entry("F32", "[2]", "[0,8]"), entry("F32", "[2]", "[4,12]"))),
              HasSubstr("the one before it"));
  EXPECT_THAT(refusal(two(entry("F32", "[1]", "[0,4]"), entry("F32", "[1]", "[8,12]"))),
              HasSubstr("gap"));
  EXPECT_THAT(refusal(two(entry("F32", "[1]", "[0,4]"), entry("F32", "[1]", "[4,8]"))),
              HasSubstr("belong to no tensor"));
  EXPECT_EQ(refusal(two(entry("F32", "[1]", "[8,12]"), entry("F32", "[2]", "[0,8]"))), "accepted");
}

TEST(Safetensors, RangesOutsideOfTheFileAreRefused) {
  EXPECT_THAT(refusal(one("F32", "[2]", "[0,8]", 4)), HasSubstr("outside"));
  EXPECT_THAT(refusal(one("F32", "[1]", "[4,0]", 4)), HasSubstr("outside"));
  EXPECT_THAT(refusal(one("F32", "[1]", "[9223372036854775800,9223372036854775804]", 4)),
              HasSubstr("outside"));
}

TEST(Safetensors, ShapeMustFillTheRange) {
  EXPECT_THAT(refusal(one("F32", "[3]", "[0,8]", 8)), HasSubstr("do not hold F32 [3]"));
  EXPECT_THAT(refusal(one("BF16", "[2,3]", "[0,8]", 8)), HasSubstr("do not hold"));
  EXPECT_THAT(refusal(one("F4", "[3]", "[0,2]", 2)), HasSubstr("do not hold"));
}

TEST(Safetensors, DtypesKeepTheirBits) {
  int known = 0;
  for (const char* name : {"BOOL", "U8",  "I8",   "F8_E4M3", "F8_E5M2", "F8_E8M0", "I16",
                           "U16",  "F16", "BF16", "I32",     "U32",     "F32",     "I64",
                           "U64",  "F64", "C64",  "F4",      "F6_E2M3", "F6_E3M2"}) {
    EXPECT_GT(safetensors_bits(name), 0) << name;
    const std::optional<DType> dtype = dtype_of_safetensors(name);
    if (!dtype) continue;
    ++known;
    EXPECT_EQ(bits(*dtype), safetensors_bits(name)) << name;
  }
  EXPECT_EQ(known, 9);
  EXPECT_EQ(dtype_of_safetensors("F4"), DType::kF4E2M1);
  EXPECT_EQ(dtype_of_safetensors("I8"), DType::kI8);
  EXPECT_FALSE(dtype_of_safetensors("I4"));
  EXPECT_EQ(safetensors_bits("I4"), 0);
}

TEST(Safetensors, SizesAreCountedInBits) {
  EXPECT_EQ(refusal(one("F4", "[3,2]", "[0,3]", 3)), "accepted");
  EXPECT_THAT(refusal(one("F4", "[3,2]", "[0,6]", 6)), HasSubstr("do not hold F4 [3, 2]"));
  EXPECT_EQ(refusal(one("F6_E2M3", "[4]", "[0,3]", 3)), "accepted");
  EXPECT_THAT(refusal(one("F6_E2M3", "[3]", "[0,3]", 3)), HasSubstr("do not hold"));
}

TEST(Safetensors, WildShapesAreRefused) {
  EXPECT_THAT(refusal(one("F32", "[-1]", "[0,4]", 4)), HasSubstr("negative"));
  EXPECT_THAT(refusal(one("F32", "[1.0]", "[0,4]", 4)), HasSubstr("integer"));
  EXPECT_THAT(refusal(one("F32", "[18446744073709551617]", "[0,4]", 4)), HasSubstr("integer"));
  EXPECT_THAT(refusal(one("F32", "[9223372036854775808]", "[0,4]", 4)), HasSubstr("too large"));
  EXPECT_THAT(refusal(one("F32", "[4294967296,4294967296]", "[0,4]", 4)), HasSubstr("do not hold"));
  EXPECT_THAT(refusal(one("F32", "[4611686018427387905,4]", "[0,4]", 4)), HasSubstr("do not hold"));
  EXPECT_THAT(refusal(one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4)),
              HasSubstr("too many numbers"));
}

TEST(Safetensors, KeysGivenTwiceAreRefused) {
  const std::string w = R"("w":)" + entry("F32", "[1]", "[0,4]");
  EXPECT_THAT(refusal(safetensors_file("{" + w + "," + w + "}", "abcd")),
              HasSubstr("duplicate key \"w\""));
  const std::string shape = R"({"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})";
  EXPECT_THAT(refusal(safetensors_file(shape, "abcd")), HasSubstr("given twice"));
}

TEST(Safetensors, OtherJsonIsRefused) {
  for (const char* header :
       {"[]", "{]", "{\"w\":1}", "{\"w\":[]}", "{\"w\":{}}", "{\"w\":null}", "{\"w\":\"x\"}",
        "{\"w\":{\"dtype\":{}}}", "{\"w\":{\"shape\":[[1]]}}", "{\"w\":{\"shape\":[{}]}}",
        "{\"__metadata__\":{\"a\":{\"b\":1}}}", "{\"__metadata__\":[]}", "{\"\xff\":1}",
        "{\"w\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}"})
    EXPECT_FALSE(parse(safetensors_file(header, "abcd"))) << header;
  EXPECT_FALSE(parse(safetensors_file(std::string(100'000, '['), "")));
  std::string deep = "{\"w\":";
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":";
  EXPECT_FALSE(parse(safetensors_file(deep, "")));
}

// What is accepted after a mutation must still lie within the file.
TEST(Safetensors, MutatedFilesNeverLie) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const std::string valid = valid_file();
  const std::string spice = "{}[]\",:0129-.eE\\u \xff";
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 200'000 && std::chrono::steady_clock::now() < end; ++i) {
    std::string file = valid;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = spice[random() % spice.size()];
          break;
        case 2:
          file.erase(at, 1 + random() % 3);
          break;
        default:
          file.insert(at, file.substr(random() % file.size(), 1 + random() % 8));
      }
      if (file.empty()) file = valid;
    }
    const auto header = parse(file);
    if (!header) continue;
    ++accepted;
    for (const TensorEntry& t : header->tensors)
      ASSERT_TRUE(t.begin <= t.end && t.end <= file.size());
  }
  EXPECT_GT(accepted, 100) << "mutations of data bytes must be accepted";
}

}  // namespace
}  // namespace skiff
