#include "text/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "text/sentencepiece_check.h"
#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string number(int field, uint64_t value) {
  return varint(uint64_t(field) << 3) + varint(value);
}
std::string bytes(int field, const std::string& value) {
  return varint(uint64_t(field) << 3 | 2) + varint(value.size()) + value;
}
std::string score(float value) {
  std::string out(4, '\0');
  std::memcpy(out.data(), &value, 4);
  return varint(2 << 3 | 5) + out;
}
std::string piece(const std::string& text, float points, Type type) {
  return bytes(1, bytes(1, text) + score(points) + number(3, type));
}
// No white space is removed; a space is put in front, as in Llama's model.
std::string normalizer(const std::string& charsmap = "") {
  return bytes(3, bytes(1, "identity") + (charsmap.empty() ? "" : bytes(2, charsmap)) +
                      number(3, 1) + number(4, 0) + number(5, 1));
}

// Ids: <unk> 0, <s> 1, </s> 2, <0x00>.. 3..258, "▁" 259, "a" 260, "b" 261, "▁a" 262, "▁ab" 263,
// "<u>" 264 user-defined.
std::string tiny_model(int model_type, const std::string& extra = "") {
  std::string out =
      piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte) out += piece(fmt::format("<0x{:02X}>", byte), 0, kByte);
  out += piece("▁", -5, kNormal) + piece("a", -6, kNormal) + piece("b", -7, kNormal) +
         piece("▁a", -1, kNormal) + piece("▁ab", -2, kNormal) + piece("<u>", 0, kUserDefined);
  return out + bytes(2, number(3, static_cast<uint64_t>(model_type)) + number(35, 1)) +
         normalizer() + extra;
}
constexpr int kUnigram = 1, kBpe = 2;

std::unique_ptr<Tokenizer> model_of(const std::string& bytes, const TokenizerConfig& config = {}) {
  auto made = parse_sentencepiece(bytes, config, "tokenizer.model");
  if (made) return std::move(*made);
  ADD_FAILURE() << made.error().what;
  return nullptr;
}

TEST(SentencePiece, EncodesAndDecodes) {
  for (const int type : {kBpe, kUnigram}) {
    const auto tokenizer = model_of(tiny_model(type));
    EXPECT_EQ(tokenizer->encode("ab a", {}), (Ids{1, 263, 262}));
    EXPECT_EQ(tokenizer->encode("ab", {.add_special = false}), Ids{263});
    EXPECT_EQ(encode_plainly(*tokenizer, "\xC3\xA9"), (Ids{259, 3 + 0xC3, 3 + 0xA9}));
    EXPECT_EQ(encode_plainly(*tokenizer, "a<u>"), (Ids{262, 264}));
    EXPECT_EQ(tokenizer->decode(Ids{1, 263, 262, 3 + 0xC3, 3 + 0xA9, 2}, true), "ab aé");
    EXPECT_EQ(tokenizer->decode(Ids{1, 263, 2}, false), "<s>ab</s>");
    EXPECT_EQ(tokenizer->decode(Ids{-1, 262, 99999}, true), "a");
    EXPECT_EQ(tokenizer->piece(263), " ab");
    EXPECT_EQ(tokenizer->piece(3 + 0xC3), "\xC3");
    EXPECT_EQ(tokenizer->piece(1), "<s>");
    EXPECT_EQ(tokenizer->bos(), "<s>");
    EXPECT_EQ(tokenizer->eos(), "</s>");
    EXPECT_EQ(tokenizer->find("▁ab"), 263);
    EXPECT_EQ(tokenizer->find("x"), std::nullopt);
    EXPECT_TRUE(tokenizer->is_special(0) && tokenizer->is_special(2));
    EXPECT_FALSE(tokenizer->is_special(264));
    EXPECT_EQ(tokenizer->vocab_size(), 265);
  }
}

TEST(SentencePiece, TextsOfSpecialTokens) {
  const auto tokenizer = model_of(tiny_model(kBpe));
  EXPECT_EQ(tokenizer->encode("a</s>a", {false, true}), (Ids{262, 2, 262}));
  const Ids plain = tokenizer->encode("a</s>a", {false, false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(tokenizer->decode(plain, true), "a</s>a");
  TokenizerConfig config;
  config.legacy = false;
  const auto later = model_of(tiny_model(kBpe), config);
  EXPECT_EQ(later->encode("a</s>a a", {false, true}), (Ids{262, 2, 260, 262}));
  EXPECT_EQ(later->decode(Ids{262, 2, 262}, false), "a</s> a");
}

TEST(SentencePiece, ConfigurationAddsTokensAndBos) {
  TokenizerConfig config;
  config.tokenizer_class = "OtherTokenizer";
  config.added = {{.content = "<|im_end|>", .id = 270, .special = true},
                  {.content = "<tool>", .id = 266}};
  EXPECT_EQ(model_of(tiny_model(kBpe), config)->encode("a", {}), Ids{262});
  config.add_bos = config.add_eos = true;
  config.eos = "<|im_end|>";
  const auto tokenizer = model_of(tiny_model(kBpe), config);
  EXPECT_EQ(tokenizer->encode("a<tool>", {}), (Ids{1, 262, 266, 270}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 262, 266, 270}, true), "a<tool>");
  EXPECT_EQ(tokenizer->vocab_size(), 271);
  EXPECT_EQ(tokenizer->piece(267), "");
  config.added = {{.content = "a", .id = 270}};
  const auto clash = parse_sentencepiece(tiny_model(kBpe), config, "tokenizer.model");
  ASSERT_FALSE(clash);
  EXPECT_THAT(clash.error().what, HasSubstr("\"a\" has the id 270 but is token 260"));
}

TEST(SentencePiece, ChatGlmAppendsItsTokens) {
  TokenizerConfig config;
  config.tokenizer_class = "ChatGLMTokenizer";
  const auto tokenizer = model_of(tiny_model(kBpe), config);
  EXPECT_EQ(tokenizer->find("[MASK]"), 265);
  EXPECT_EQ(tokenizer->encode("a", {}), (Ids{266, 268, 262}));
  EXPECT_EQ(tokenizer->encode("a", {.add_special = false}), Ids{262});
  EXPECT_EQ(encode_plainly(*tokenizer, "[gMASK]sop<|user|>a"), (Ids{266, 268, 271, 262}));
  // Elsewhere these are ordinary words.
  const Ids words = encode_plainly(*tokenizer, "sop a[gMASK] eop");
  EXPECT_EQ(std::count(words.begin(), words.end(), 268), 0);
  EXPECT_EQ(std::count(words.begin(), words.end(), 269), 0);
  EXPECT_EQ(tokenizer->decode(Ids{266, 268, 263, 272}, true), "ab");
  config.name_or_path = "THUDM/chatglm2-6b";
  EXPECT_EQ(model_of(tiny_model(kBpe), config)->vocab_size(), 270);
}

TEST(SentencePiece, BaichuanPutsBosUnlessToldOtherwise) {
  TokenizerConfig config;
  config.tokenizer_class = "BaichuanTokenizer";
  EXPECT_EQ(model_of(tiny_model(kBpe), config)->encode("a", {}), (Ids{1, 262}));
  config.add_bos = false;
  EXPECT_EQ(model_of(tiny_model(kBpe), config)->encode("a", {}), Ids{262});
}

std::string refusal(const std::string& model) {
  const auto made = parse_sentencepiece(model, {}, "dir/tokenizer.model");
  return made ? "accepted" : made.error().what;
}

// A character map whose trie has `units` units; see is_sound_trie.
std::string charsmap(const std::vector<uint32_t>& units, const std::string& texts) {
  std::string out(4 + 4 * units.size(), '\0');
  const auto size = static_cast<uint32_t>(4 * units.size());
  std::memcpy(out.data(), &size, 4);
  std::memcpy(out.data() + 4, units.data(), size);
  return out + texts;
}

TEST(SentencePiece, RefusesBrokenModels) {
  const std::string good = tiny_model(kBpe);
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(refusal(""), HasSubstr("dir/tokenizer.model: not a valid SentencePiece model"));
  EXPECT_THAT(refusal(good.substr(0, good.size() - 3)), HasSubstr("cut short"));
  EXPECT_THAT(refusal(good + piece("a", 0, kNormal)), HasSubstr("already defined"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(good + piece("q", nan, kNormal)), HasSubstr("score is not finite"));
  EXPECT_THAT(refusal(good + piece(std::string("q\0", 2), 0, kNormal)), HasSubstr("NUL"));
  const std::vector<uint32_t> empty(256, 0);
  EXPECT_EQ(refusal(good + normalizer(charsmap(empty, std::string(1, '\0')))), "accepted");
  EXPECT_THAT(refusal(good + normalizer(charsmap(empty, "x"))), HasSubstr("charsmap is damaged"));
  std::vector<uint32_t> far = empty;
  far[0] = 5000u << 10;  // leads outside the trie
  EXPECT_THAT(refusal(good + normalizer(charsmap(far, std::string(1, '\0')))),
              HasSubstr("charsmap is damaged"));
  std::vector<uint32_t> beyond = empty;
  beyond[0] = 1u << 10 | 1u << 8;  // has its leaf at unit 1, whose text would begin at byte 9
  beyond[1] = 1u << 31 | 9;
  EXPECT_THAT(refusal(good + normalizer(charsmap(beyond, std::string(1, '\0')))),
              HasSubstr("charsmap is damaged"));
}

// A damaged file is refused or gives a tokenizer that encodes; the test takes at most 2 s.
TEST(SentencePiece, SurvivesDamage) {
  const std::string models[] = {tiny_model(kBpe), tiny_model(kUnigram)};
  std::mt19937 random(17);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int accepted = 0;
  for (int trial = 0; trial < 3000 && std::chrono::steady_clock::now() < end; ++trial) {
    std::string model = models[trial % 2];
    for (int i = 0; i <= trial % 3; ++i)
      model[random() % model.size()] = static_cast<char>(random());
    if (trial % 7 == 0) model.resize(random() % model.size());
    if (trial % 5 == 0) model.erase(random() % model.size(), 1 + random() % 8);
    const auto made = parse_sentencepiece(model, {}, "m");
    if (!made) continue;
    ++accepted;
    const Ids ids = (*made)->encode("ab <u>é</s> a\xFF", {});
    (*made)->decode(ids, false);
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace skiff::text
