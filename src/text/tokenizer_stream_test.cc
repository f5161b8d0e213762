#include "text/tokenizer_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

std::vector<std::pair<std::string, int32_t>> sorted_vocab(const TokenIndex& vocab) {
  std::vector<std::pair<std::string, int32_t>> out;
  for (size_t i = 0; i < vocab.size(); ++i) out.emplace_back(vocab.text(i), vocab.id(i));
  std::sort(out.begin(), out.end());
  return out;
}

// The streamed lists equal those of the whole JSON value.
void expect_equal(const TokenizerStream& stream, Json whole) {
  const BpeLists lists = read_bpe_lists(Fields(whole, "t").child("model"));
  EXPECT_EQ(sorted_vocab(stream.lists.vocab), sorted_vocab(lists.vocab));
  ASSERT_EQ(stream.lists.merges.size(), lists.merges.size());
  for (size_t i = 0; i < lists.merges.size(); ++i) {
    EXPECT_EQ(stream.lists.merges.left(i), lists.merges.left(i));
    EXPECT_EQ(stream.lists.merges.right(i), lists.merges.right(i));
  }
  whole["model"]["vocab"] = whole["model"]["merges"] = nullptr;
  EXPECT_EQ(stream.file, whole);
}

TEST(TokenizerStream, GivesWhatTheValueHolds) {
  for (const Json& file : {tiny_tokenizer_json(), tiny_metaspace_json()}) {
    const auto stream = stream_tokenizer_json(file.dump());
    ASSERT_TRUE(stream);
    expect_equal(*stream, file);
  }
}

TEST(TokenizerStream, LeavesTheUnusualToOthers) {
  const auto streams = [](const std::string& text) {
    return stream_tokenizer_json(text).has_value();
  };
  EXPECT_TRUE(streams(R"({"model":{"merges":["a b",["c","d"]],"vocab":{"a":0}}})"));
  for (const char* text :
       {R"({"model":{"vocab":{"a":0}}})", R"({"vocab":{"a":0},"merges":[]})",
        R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})",
        R"({"model":{"vocab":{"a":-1},"merges":[]}})", R"({"model":{"vocab":[],"merges":[]}})",
        R"({"model":{"vocab":{"a":{}},"merges":[]}})", R"({"model":{"vocab":{},"merges":["ab"]}})",
        R"({"model":{"vocab":{},"merges":["a b c"]}})",
        R"({"model":{"vocab":{},"merges":[["a"]]}})",
        R"({"model":{"vocab":{},"merges":[["a","b","c"]]}})",
        R"({"model":{"vocab":{},"merges":[["a",["b"]]]}})",
        R"({"model":{"vocab":{},"merges":[null]}})",
        R"({"model":{"vocab":{},"merges":[],"vocab":{}}})",
        R"([{"model":{"vocab":{},"merges":[]}}])", R"({"model":[{"vocab":{},"merges":[]}]})",
        R"({"x":{"model":{"vocab":{},"merges":[]}}})", R"({"model":{"vocab":{},"merges":[]}}})",
        ""})
    EXPECT_FALSE(streams(text)) << text;
}

TEST(TokenizerStream, DamagedFiles) {
  const std::string seeds[] = {tiny_tokenizer_json().dump(), tiny_metaspace_json().dump()};
  const std::string signs = "{}[],:\"\\0e a";
  std::mt19937 random(7);
  int streamed = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bytes = seeds[trial % 2];
    for (int i = 0; i <= trial % 2; ++i)
      bytes[random() % bytes.size()] = signs[random() % signs.size()];
    const auto stream = stream_tokenizer_json(bytes);
    if (!stream || stream->file["model"].value("type", "BPE") != "BPE") continue;
    ++streamed;
    const auto whole = parse_json(bytes);
    ASSERT_TRUE(whole) << bytes;
    expect_equal(*stream, *whole);
  }
  EXPECT_GT(streamed, 100);
}

}  // namespace
}  // namespace skiff::text
