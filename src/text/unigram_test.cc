#include "text/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/charsmap.h"
#include "text/clean_text.h"
#include "text/tokenizer_testing.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

Ids encoded(const Unigram& model, std::string_view text) {
  Ids out;
  model.encode(text, out);
  return out;
}

double score_of(const std::vector<Unigram::Piece>& pieces, const Ids& ids) {
  double sum = 0;
  for (const int32_t id : ids) sum += pieces[static_cast<size_t>(id)].score;
  return sum;
}

// Returns the best score over all ways to cut `text` into pieces, by trying each; -inf if there is
// none.
double best_score(const std::vector<Unigram::Piece>& pieces, std::string_view text) {
  std::vector<double> best(text.size() + 1, -INFINITY);
  best[0] = 0;
  for (size_t end = 1; end <= text.size(); ++end)
    for (const Unigram::Piece& piece : pieces)
      if (text.substr(0, end).ends_with(piece.text))
        best[end] = std::max(best[end], best[end - piece.text.size()] + piece.score);
  return best[text.size()];
}

TEST(Unigram, FindsTheBestSegmentation) {
  std::mt19937 random(37);
  for (int trial = 0; trial < 100; ++trial) {
    std::map<std::string, double> scores;
    for (const char* letter : {"a", "b", "é"}) scores[letter] = -5.0;
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (size_t k = 2 + random() % 3; k > 0; --k) text += random() % 3 ? "a" : "b";
      scores[text] = -1.0 - static_cast<double>(random() % 1000) / 100;
    }
    std::vector<Unigram::Piece> pieces;
    pieces.reserve(scores.size());
    for (const auto& [text, score] : scores) pieces.push_back({text, score});
    const Unigram model(pieces, -1, false);
    std::string text;
    for (int k = 0; k < 20; ++k) text += random() % 5 == 0 ? "é" : random() % 2 ? "a" : "b";
    const Ids ids = encoded(model, text);
    std::string joined;
    for (const int32_t id : ids) joined += pieces[static_cast<size_t>(id)].text;
    EXPECT_EQ(joined, text);
    EXPECT_NEAR(score_of(pieces, ids), best_score(pieces, text), 1e-9) << text;
  }
}

TEST(Unigram, UnknownCharacters) {
  const std::vector<Unigram::Piece> pieces = {
      {"<unk>", 0}, {"a", -1}, {"<0xC3>", -9}, {"<0xA9>", -9}};
  EXPECT_EQ(encoded(Unigram(pieces, 0, false), "aéxa"),
            (Ids{1, 0, 1}));  // one token for consecutive unknown characters
  EXPECT_EQ(encoded(Unigram(pieces, 0, true), "aéa"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(encoded(Unigram(pieces, 0, true), "aéx"), (Ids{1, 0}));  // x has no byte token
  EXPECT_EQ(encoded(Unigram(pieces, -1, false), "aéa"), (Ids{1, 1}));
  EXPECT_EQ(encoded(Unigram(pieces, 0, false), ""), Ids{});
}

TEST(Unigram, ReadsAndRefuses) {
  const auto refusal = [](const Json& model) {
    const Json file = {{"model", model}};
    const auto made = parse_tokenizer_json(file.dump(), {}, "t");
    return made ? "accepted" : made.error().what;
  };
  const Json vocab = Json::array({Json::array({"<unk>", 0}), Json::array({"a", -1.5})});
  const Json good = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  EXPECT_EQ(refusal(good), "accepted");
  Json bad = good;
  bad["unk_id"] = 2;
  EXPECT_THAT(refusal(bad), HasSubstr("unk_id 2 is not one of 0 to 1"));
  bad = good;
  bad["vocab"] = {{"a", 1}};
  EXPECT_THAT(refusal(bad), HasSubstr("vocab is missing or empty"));
  bad["vocab"] = Json::array({Json::array({"a", "b"})});
  EXPECT_THAT(refusal(bad), HasSubstr("is not a piece and its score"));
}

// A map whose only entry is "a" to "bcd": the root at 0 leads to 'a', that to its leaf.
std::string map_of_a() {
  std::vector<uint32_t> units(512, 0);
  units[0] = 256u << 10;                        // 0 ^ 256
  units[256 ^ 'a'] = 3u << 10 | 1u << 8 | 'a';  // has a leaf at its own place ^ 3
  units[256 ^ 'a' ^ 3] = 1u << 31 | 1;          // the text at 1
  const auto size = static_cast<uint32_t>(4 * units.size());
  std::string out(reinterpret_cast<const char*>(&size), 4);
  out.append(reinterpret_cast<const char*>(units.data()), size);
  return out + std::string("\0bcd\0", 5);
}

TEST(Charsmap, ReplacesAndRefuses) {
  const auto map = Charsmap::read(map_of_a());
  ASSERT_TRUE(map) << map.error().what;
  EXPECT_EQ(map->apply("xaay"), "xbcdbcdy");
  EXPECT_EQ(map->growth(), 3);
  // The shortest entry counts for a whole grapheme cluster: its mark is lost.
  EXPECT_EQ(map->apply("a\u0301"), "bcd");
  EXPECT_FALSE(Charsmap::read(""));
  std::string leaf_root = map_of_a();
  leaf_root[7] = static_cast<char>(leaf_root[7] | 0x80);  // leads far outside
  EXPECT_FALSE(Charsmap::read(leaf_root));
  EXPECT_FALSE(Charsmap::read("\x04\0\0\0abcd"));
}

TEST(CleanText, Characters) {
  EXPECT_EQ(nmt_cleaned("a\tb\x01\u200Bc\uFEFF"), "a b c ");
  EXPECT_EQ(without_marks("e\u0301\u0915\u094D"), "e\u0915");
  EXPECT_EQ(bert_cleaned("Caf\u00C9\u4F60\n\x07x", {}), "cafe \u4F60  x");
  EXPECT_EQ(bert_cleaned("\u00C9", {.strip_accents = false}), "\u00E9");
  const std::string family = "👨\u200D👩\u200D👧";
  EXPECT_EQ(grapheme_end(family + "x", 0), family.size());
  EXPECT_EQ(grapheme_end("xe\u0301y", 1), 4u);
}

}  // namespace
}  // namespace skiff::text
