// Rank files small enough to work out by hand; real ones are in tokenizer_vectors_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/rank_file.h"
#include "text/tiktoken_family.h"
#include "text/tiktoken_tokenizer.h"
#include "text/tokenizer_data_testing.h"

namespace skiff::text {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// The bytes 0..255, then `more`.
std::string ranks(const std::vector<std::string>& more = {}) {
  std::string out;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    out += fmt::format("{} {}\n", base64(std::string(1, static_cast<char>(byte))), rank++);
  for (const std::string& token : more) out += fmt::format("{} {}\n", base64(token), rank++);
  return out;
}

TokenizerConfig config_of(const std::string& tokenizer_class) {
  TokenizerConfig config;
  config.tokenizer_class = tokenizer_class;
  return config;
}

std::unique_ptr<Tokenizer> tiktoken_of(const std::string& file, const TokenizerConfig& config) {
  auto made = parse_tiktoken(file, config, "t");
  if (made) return std::move(*made);
  ADD_FAILURE() << made.error().what;
  return nullptr;
}

std::string refusal(const std::string& file, const std::string& tokenizer_class) {
  const auto made = parse_tiktoken(file, config_of(tokenizer_class), "dir/tokenizer.model");
  return made ? "accepted" : made.error().what;
}

TEST(RankFile, IsToldByItsFirstLine) {
  EXPECT_TRUE(is_rank_file(ranks()));
  EXPECT_TRUE(is_rank_file("IQ== 0"));
  EXPECT_TRUE(is_rank_file("IQ== 0\r\nIg== 1\r\n"));
  for (const char* other : {"", "\n", "IQ== ", "IQ== x", "IQ= 0", "\x0A\x05", "{}", "hello 1"})
    EXPECT_FALSE(is_rank_file(other)) << other;
}

TEST(RankFile, BrokenOnesAreRefusedByLine) {
  const std::string all = ranks();
  const char* qwen = "QWenTokenizer";
  EXPECT_THAT(refusal(all + "x\n", qwen), HasSubstr("dir/tokenizer.model: line 257"));
  EXPECT_THAT(refusal(all + "YWI= 255\n", qwen), HasSubstr("rank 255 comes twice"));
  EXPECT_THAT(refusal(all + "YQ== 256\n", qwen), HasSubstr("its token comes twice"));
  EXPECT_THAT(refusal(all + "YWI= 257\n", qwen), HasSubstr("no token of rank 256"));
  EXPECT_THAT(refusal(all + "YWI= 99999999\n", qwen), HasSubstr("rank 99999999, the limit is"));
  EXPECT_THAT(refusal(all + "YWI= -1\n", qwen), HasSubstr("not \"base64 rank\""));
  EXPECT_THAT(refusal(all + base64(std::string(513, 'a')) + " 256\n", qwen),
              HasSubstr("a token of 513 bytes"));
  EXPECT_THAT(refusal("IQ== 0\n", qwen), HasSubstr("no token for the byte 0x00"));
}

TEST(Tiktoken, UnknownFamiliesAreRefusedWithTheWayOut) {
  for (const char* kind : {"", "OddTokenizer"}) {
    const auto made = parse_tiktoken(ranks(), config_of(kind), "m");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    EXPECT_THAT(made.error().what, HasSubstr("256 ranks"));
    EXPECT_THAT(made.error().what, HasSubstr("put the tokenizer.json"));
  }
  EXPECT_EQ(tiktoken_family(config_of(""), 128000, "m").name, "Llama 3");
  EXPECT_EQ(tiktoken_family(config_of("PreTrainedTokenizerFast"), 151643, "m").name, "Qwen");
  EXPECT_EQ(tiktoken_family(config_of(""), 100256, "m").specials.at(20), "<|endofprompt|>");
  EXPECT_EQ(tiktoken_family(config_of(""), 128000, "m").specials.size(), 256u);
}

TEST(Tiktoken, MergesByRankAndFindsSpecials) {
  // "abc" has a rank, but its parts merge in another order: "bc" comes first.
  const auto t = tiktoken_of(ranks({"bc", "ab", "abcd", "cd"}), config_of("QWenTokenizer"));
  EXPECT_EQ(t->encode("abcd", {}), Ids{258});  // a word that is a token
  EXPECT_EQ(t->encode("xabcd", {}), (Ids{'x', 'a', 256, 'd'}));
  EXPECT_EQ(t->encode("a<|im_end|>b", {}), (Ids{'a', 262, 'b'}));
  EXPECT_EQ(t->encode("12", {}), (Ids{'1', '2'}));
  EXPECT_EQ(t->decode(Ids{262, 256, 0xE4}, true), "bc\uFFFD");
  EXPECT_EQ(t->decode(Ids{256, 262}, false), "bc<|im_end|>");
  EXPECT_EQ(t->find("<|endoftext|>"), 260);
  EXPECT_EQ(t->find("\u0120"), ' ');
  EXPECT_EQ(t->eos(), "<|endoftext|>");
  EXPECT_EQ(t->vocab_size(), 260 + 208);
  // Qwen normalizes before it looks for special tokens, so "|>" with a stroke does not end one.
  EXPECT_EQ(t->encode("<|im_end|>\u0338", {}).size(), 9u + 3u);
}

// The definition: merges the neighbours whose joined bytes are the token of the lowest rank, the
// leftmost first.
Ids merged(const std::string& text, const std::vector<std::string>& tokens) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  const auto rank_of = [&](const std::string& part) {
    return std::find(tokens.begin(), tokens.end(), part) - tokens.begin();
  };
  if (rank_of(text) < std::ssize(tokens)) return {static_cast<int32_t>(rank_of(text))};
  for (;;) {
    size_t best = 0;
    auto lowest = std::ssize(tokens);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = rank_of(parts[i] + parts[i + 1]);
      if (rank < lowest) lowest = rank, best = i;
    }
    if (lowest == std::ssize(tokens)) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids out;
  for (const std::string& part : parts) out.push_back(static_cast<int32_t>(rank_of(part)));
  return out;
}

TEST(Tiktoken, RandomVocabulariesMergeAsDefined) {
  std::mt19937 random(31);
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t i = 2 + random() % (most - 1); i > 0; --i)
      out += static_cast<char>('a' + random() % 3);
    return out;
  };
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::string> more, tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    while (more.size() < 25) {
      const std::string token = word(5);
      if (std::find(more.begin(), more.end(), token) == more.end()) more.push_back(token);
    }
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto t = tiktoken_of(ranks(more), config_of("QWenTokenizer"));
    for (int i = 0; i < 20; ++i) {
      const std::string text = word(30);
      EXPECT_EQ(t->encode(text, {}), merged(text, tokens)) << text;
    }
  }
}

TEST(Tiktoken, ConfigurationNamesTokensAndFrame) {
  TokenizerConfig config = config_of("ChatGLM4Tokenizer");
  config.added = {{.content = "[gMASK]", .id = 256, .special = true},
                  {.content = "<sop>", .id = 257, .special = true},
                  {.content = "<|endoftext|>", .id = 258}};
  const auto t = tiktoken_of(ranks(), config);
  EXPECT_EQ(t->encode("a", {}), (Ids{256, 257, 'a'}));
  EXPECT_EQ(t->encode("a", {.add_special = false}), Ids{'a'});
  config.added.pop_back();
  config.added.pop_back();
  EXPECT_THAT(parse_tiktoken(ranks(), config, "m").error().what, HasSubstr("\"<sop>\" belongs"));
  config.added[0].id = 97;
  EXPECT_THAT(parse_tiktoken(ranks(), config, "m").error().what, HasSubstr("is taken"));
}

TEST(LoadTokenizer, FindsRankFilesByContent) {
  const TempFolder folder;
  folder.write("qwen.tiktoken", ranks());
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  const auto qwen = load_tokenizer(folder.path());
  ASSERT_TRUE(qwen) << qwen.error().what;
  EXPECT_EQ((*qwen)->find("<|im_start|>"), 257);
  const auto one = load_tokenizer(folder.path() + "/qwen.tiktoken");
  ASSERT_TRUE(one) << one.error().what;
  EXPECT_EQ((*one)->vocab_size(), (*qwen)->vocab_size());
  folder.write("other.tiktoken", ranks());
  EXPECT_THAT(load_tokenizer(folder.path()).error().what, HasSubstr("several files *.tiktoken"));
  folder.write("tokenizer.model", ranks({"ab"}));
  EXPECT_EQ((*load_tokenizer(folder.path()))->find("<|im_start|>"), 258);
}

}  // namespace
}  // namespace skiff::text
