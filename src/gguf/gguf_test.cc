#include "gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace skiff {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The bytes of a file, right or wrong on purpose.
class File {
 public:
  template <class T>
  File& add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  File& text(const std::string& value, uint64_t more = 0) {
    add<uint64_t>(value.size() + more);
    bytes_ += value;
    return *this;
  }
  File& start(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes_ += "GGUF";
    return add(version).add(tensors).add(keys);
  }
  // 32 x 2 elements of Q8_0.
  File& tensor(const std::string& name, uint64_t offset, uint64_t rows = 2, uint32_t type = 8) {
    return text(name).add<uint32_t>(2).add<uint64_t>(32).add(rows).add(type).add(offset);
  }
  File& data(size_t size) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + size, '\1');
    return *this;
  }
  Result<GgufHeader> parse() const { return parse_gguf(std::as_bytes(std::span(bytes_))); }
  std::string refusal() const {
    const auto header = parse();
    return header ? "accepted" : header.error().what;
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

File good() {
  File file;
  file.start(2, 3).text("a").add<uint32_t>(4).add<uint32_t>(7);
  file.text("b").add<uint32_t>(8).text("word");
  file.text("c").add<uint32_t>(9).add<uint32_t>(8).add<uint64_t>(2).text("x").text("y");
  return file.tensor("w", 0).tensor("v", 96).data(96 + 68);
}

TEST(Gguf, HoldsMetadataAndTensors) {
  const auto header = good().parse();
  ASSERT_TRUE(header) << header.error().what;
  EXPECT_EQ(header->metadata, (Json{{"a", 7}, {"b", "word"}, {"c", {"x", "y"}}}));
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[1].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(header->tensors[1].type, "Q8_0");
  EXPECT_EQ(header->tensors[1].end - header->tensors[1].begin, 68u);
  EXPECT_EQ(header->tensors[0].begin % 32, 0u);
}

// Whatever is cut off, the rest is refused.
TEST(Gguf, EveryPrefixIsRefused) {
  const std::string whole = good().bytes();
  for (size_t n = 0; n < whole.size(); ++n) {
    File cut;
    cut.bytes() = whole.substr(0, n);
    EXPECT_NE(cut.refusal(), "accepted") << n;
  }
}

TEST(Gguf, CountsAndLengthsAreBounded) {
  EXPECT_THAT(File().start(uint64_t{1} << 60, 0).refusal(), HasSubstr("tensors and 0 keys"));
  EXPECT_THAT(File().start(0, uint64_t{1} << 60).refusal(), HasSubstr("keys; at most"));
  EXPECT_THAT(File().start(0, 1).text("k", ~uint64_t{0} - 1).refusal(), HasSubstr("does not fit"));
  EXPECT_THAT(
      File().start(0, 1).text("k").add<uint32_t>(9).add<uint32_t>(0).add(~uint64_t{0}).refusal(),
      HasSubstr("does not fit"));
  EXPECT_THAT(File().start(1, 0).tensor("w", 0, uint64_t{1} << 62).data(64).refusal(),
              HasSubstr("has a dimension of"));
  EXPECT_THAT(File().start(1, 0).tensor("w", 0, 0).data(64).refusal(), HasSubstr("dimension of 0"));
}

// Bytes of a file that become elements take many times their size in memory.
TEST(Gguf, ElementsOfAllArraysAreBounded) {
  constexpr uint64_t kHalf = 1 << 21;
  const auto arrays = [&](int count) {
    File file;
    file.start(0, static_cast<uint64_t>(count));
    for (int i = 0; i < count; ++i) {
      file.text("k" + std::to_string(i)).add<uint32_t>(9).add<uint32_t>(0).add(kHalf);
      file.bytes().append(kHalf, '\1');
    }
    return file.data(32);
  };
  EXPECT_EQ(arrays(2).refusal(), "accepted");
  EXPECT_THAT(arrays(3).refusal(), HasSubstr("all arrays may have 4194304"));
}

TEST(Gguf, OtherVersionsKindsAndTypesAreRefused) {
  EXPECT_THAT(File().start(0, 0, 1).refusal(), HasSubstr("version 1"));
  EXPECT_THAT(File().start(0, 0, 0x03000000).refusal(), HasSubstr("version"));
  EXPECT_THAT(File().start(0, 1).text("k").add<uint32_t>(13).refusal(), HasSubstr("kind 13"));
  EXPECT_THAT(
      File().start(0, 1).text("k").add<uint32_t>(9).add<uint32_t>(9).add<uint64_t>(0).refusal(),
      HasSubstr("an array of kind 9"));
  EXPECT_THAT(File().start(1, 0).tensor("w", 0, 2, 77).data(68).refusal(), HasSubstr("type 77"));
  for (const auto& [id, name] :
       {std::pair{9u, "Q8_1"}, {16u, "IQ2_XXS"}, {19u, "IQ1_S"}, {21u, "IQ3_S"}, {34u, "TQ1_0"}})
    EXPECT_THAT(File().start(1, 0).tensor("blk.0.w", 0, 2, id).data(68).refusal(),
                AllOf(HasSubstr("blk.0.w"), HasSubstr(name), HasSubstr("safetensors")));
  EXPECT_THAT(File().start(1, 0).tensor("w", 0, 2, 12).data(68).refusal(),
              HasSubstr("not whole blocks of 256"));
}

TEST(Gguf, OffsetsAreAlignedApartAndInside) {
  EXPECT_THAT(File().start(1, 0).tensor("w", 8).data(96).refusal(), HasSubstr("not aligned"));
  EXPECT_THAT(File().start(1, 0).tensor("w", 64).data(96).refusal(), HasSubstr("beyond the file"));
  EXPECT_THAT(File().start(1, 0).tensor("w", ~uint64_t{31}).data(96).refusal(),
              HasSubstr("beyond the file"));
  EXPECT_THAT(File().start(2, 0).tensor("w", 0).tensor("v", 32).data(164).refusal(),
              HasSubstr("overlap"));
  EXPECT_THAT(File().start(2, 0).tensor("w", 0).tensor("w", 96).data(164).refusal(),
              HasSubstr("twice"));
  for (const uint32_t alignment : {0u, 33u, 1u << 31})
    EXPECT_THAT(File()
                    .start(0, 1)
                    .text("general.alignment")
                    .add<uint32_t>(4)
                    .add(alignment)
                    .data(64)
                    .refusal(),
                HasSubstr("power of two"));
}

TEST(Gguf, AnAlignmentThatIsNoNumberIsNotRepeated) {
  EXPECT_THAT(File()
                  .start(0, 1)
                  .text("general.alignment")
                  .add<uint32_t>(8)
                  .text(std::string(1 << 16, 'x'))
                  .data(64)
                  .refusal(),
              HasSubstr("\"general.alignment\" is no number"));
}

TEST(Gguf, TextIsUtf8AndKeysAreApart) {
  EXPECT_THAT(File().start(0, 1).text("\xff").add<uint32_t>(0).refusal(), HasSubstr("UTF-8"));
  EXPECT_THAT(File()
                  .start(0, 2)
                  .text("k")
                  .add<uint32_t>(0)
                  .add<uint8_t>(1)
                  .text("k")
                  .add<uint32_t>(0)
                  .add<uint8_t>(1)
                  .refusal(),
              HasSubstr("twice"));
}

}  // namespace
}  // namespace skiff
