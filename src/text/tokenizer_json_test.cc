#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::string refusal(const std::string& bytes, const TokenizerConfig& config = {}) {
  const auto made = parse_tokenizer_json(bytes, config, "dir/tokenizer.json");
  return made ? "accepted" : made.error().what;
}

TEST(TokenizerJson, RefusesWithFileAndKey) {
  struct Case {
    const char* path;
    Json value;
    std::string says;
  };
  const Json merges_of_unknown = Json::array({"i qq"}), no_pair = Json::array({"a b c"});
  const Case cases[] = {
      {"/model/type", "WordPiece", "model type WordPiece is not supported"},
      {"/model/merges", nullptr, "merges are missing"},
      {"/model/merges", merges_of_unknown, "is not in the vocabulary"},
      {"/model/merges", no_pair, "is not a pair of tokens"},
      {"/model/merges", Json::array({7}), "is not a pair of tokens"},
      {"/model/vocab", Json::object(), "vocab is missing or empty"},
      {"/model/vocab/he", 3, "have the same id 3"},
      {"/model/vocab/he", -1, "\"he\" has the id -1"},
      {"/model/vocab/he", 1 << 21, "\"he\" has the id 2097152"},
      {"/model/vocab/he", "x", "\"he\" has the id \"x\""},
      {"/model/vocab/he", 1.5, "\"he\" has the id 1.5"},
      {"/model/unk_token", "nope", "unk_token: \"nope\" is not in the vocabulary"},
      {"/model/dropout", 0.1, "dropout is not supported"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix is not supported"},
      {"/model/byte_fallback", "yes", "key \"byte_fallback\" has the wrong type"},
      {"/model", nullptr, "missing key \"model\""},
      {"/normalizer", {{"type", "Odd"}}, "normalizer type Odd is not supported"},
      {"/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
       "normalizer: precompiled_charsmap is damaged"},
      {"/normalizer", {{"type", "Sequence"}}, "missing key \"normalizers\""},
      {"/normalizer", 3, "normalizer: expected a JSON object"},
      {"/pre_tokenizer",
       {{"type", "UnicodeScripts"}},
       "pre_tokenizer type UnicodeScripts is not supported"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}},
       "pattern \"(\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Odd"}},
       "behavior Odd is not supported"},
      {"/decoder", {{"type", "CTC"}}, "decoder type CTC is not supported"},
      {"/post_processor", {{"type", "Odd"}}, "post_processor type Odd is not supported"},
      {"/post_processor",
       {{"type", "BertProcessing"}, {"cls", {"<end>", 261}}, {"sep", {"<end>"}}},
       "sep must be a token and its id"},
      {"/added_tokens", Json::array({{{"content", "x"}, {"id", 5}}}), "\"x\" has the id 5 of"},
      {"/added_tokens", Json::array({{{"content", "he"}, {"id", 300}}}), "has the ids 257 and 300"},
      {"/added_tokens", Json::array({{{"content", "q"}}}), "missing key \"id\""},
      {"/added_tokens", Json::array({{{"id", 400}}}), "missing key \"content\""},
  };
  for (const Case& c : cases) {
    Json file = tiny_tokenizer_json();
    file[Json::json_pointer(c.path)] = c.value;
    const std::string what = refusal(file.dump());
    EXPECT_THAT(what, HasSubstr(c.says)) << c.path;
    EXPECT_THAT(what, HasSubstr("dir/tokenizer.json")) << c.path;
    EXPECT_EQ(what.find('\n'), what.npos);
  }
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a JSON object"));
}

// Repeated growth would make an exponentially long text of a short one.
TEST(TokenizerJson, RefusesNormalizersThatExplode) {
  Json steps = Json::array();
  for (int i = 0; i < 30; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  Json file = tiny_tokenizer_json();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_THAT(refusal(file.dump()), HasSubstr("could grow a text"));
}

TEST(TokenizerJson, HolesInTheVocabularyAreAllowed) {
  Json file = tiny_tokenizer_json();
  file["added_tokens"][0]["id"] = 300;
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->piece(270), "");
  EXPECT_FALSE(tokenizer->is_special(270));
  EXPECT_EQ(tokenizer->decode(Ids{270, 'a'}, false), "a");
}

Json with_added(const Json& flags) {
  Json file = tiny_tokenizer_json();
  Json token = {{"content", "tok"}, {"id", 262}, {"special", true}, {"normalized", false}};
  token.update(flags);
  file["added_tokens"].push_back(token);
  return file;
}

TEST(AddedTokens, Flags) {
  const auto plain = tokenizer_of(with_added(Json::object()));
  EXPECT_EQ(encode_plainly(*plain, "a tok b"), (Ids{'a', ' ', 262, ' ', 'b'}));
  const auto left = tokenizer_of(with_added({{"lstrip", true}}));
  EXPECT_EQ(encode_plainly(*left, "a \n tok b"), (Ids{'a', 262, ' ', 'b'}));
  const auto right = tokenizer_of(with_added({{"rstrip", true}}));
  EXPECT_EQ(encode_plainly(*right, "a tok \u3000b"), (Ids{'a', ' ', 262, 'b'}));
  const auto single = tokenizer_of(with_added({{"single_word", true}}));
  EXPECT_EQ(encode_plainly(*single, "tok"), Ids{262});
  EXPECT_EQ(encode_plainly(*single, "(tok)"), (Ids{'(', 262, ')'}));
  EXPECT_EQ(encode_plainly(*single, "toks"), (Ids{'t', 'o', 'k', 's'}));
  EXPECT_EQ(encode_plainly(*single, "étok"), (Ids{0xC3, 0xA9, 't', 'o', 'k'}));
}

TEST(AddedTokens, NormalizedOnesMatchNormalizedText) {
  Json file = with_added({{"normalized", true}});
  file["normalizer"] = {{"type", "Lowercase"}};
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(encode_plainly(*tokenizer, "TOK<end>"), (Ids{262, 261}));
  EXPECT_EQ(encode_plainly(*tokenizer, "<END>"), (Ids{'<', 'e', 'n', 'd', '>'}));
}

TEST(AddedTokens, TheLongestOfTheLeftmost) {
  Json file = with_added(Json::object());
  file["added_tokens"].push_back(
      {{"content", "tokens"}, {"id", 263}, {"special", false}, {"normalized", false}});
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(encode_plainly(*tokenizer, "tokenstoken"), (Ids{263, 262, 'e', 'n'}));
  EXPECT_EQ(tokenizer->encode("tokens", {true, false}), Ids{263});
  EXPECT_EQ(tokenizer->decode(Ids{263, 262}, true), "tokens");
}

TEST(TokenizerConfig, DecidesAboutBosAndEos) {
  TokenizerConfig config;
  config.bos = "<end>";
  config.eos = "he";
  const Json file = tiny_tokenizer_json();
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {}), Ids{'a'});
  config.add_eos = true;
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {}), (Ids{'a', 257}));
  config.add_bos = true;
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {}), (Ids{261, 'a', 257}));
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {.add_special = false}), Ids{'a'});
  config.add_bos = config.add_eos = {};
  config.tokenizer_class =
      "LlamaTokenizerFast";  // adds BOS unless the configuration says otherwise
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {}), (Ids{261, 'a'}));
  config.add_bos = false;
  EXPECT_EQ(tokenizer_of(file, config)->encode("a", {}), Ids{'a'});
  EXPECT_EQ(tokenizer_of(tiny_metaspace_json(), config)->encode("a", {}), Ids{262});
  config.add_bos = true;
  config.bos = "missing";
  EXPECT_THAT(refusal(file.dump(), config), HasSubstr("add_bos_token is set but \"missing\""));
}

TEST(LoadTokenizer, ReadsTheFolder) {
  const TempFolder folder;
  EXPECT_EQ(load_tokenizer(folder.path()).error().code, Code::kNotFound);
  folder.write("tokenizer.json", tiny_tokenizer_json().dump());
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<end>"}, "eos_token": null, "add_bos_token": true,
                   "added_tokens_decoder": {"262": {"content": "<more>", "special": true}}})");
  folder.write("special_tokens_map.json", R"({"bos_token": "x", "eos_token": "<end>"})");
  folder.write("added_tokens.json", R"({"<tool>": 263})");
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().what;
  EXPECT_EQ((*tokenizer)->bos(), "<end>");
  EXPECT_EQ((*tokenizer)->eos(), "<end>");
  EXPECT_EQ((*tokenizer)->encode("<more><tool>", {}), (Ids{261, 262, 263}));
  EXPECT_TRUE((*tokenizer)->is_special(262));
  EXPECT_FALSE((*tokenizer)->is_special(263));
  folder.write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  EXPECT_THAT(load_tokenizer(folder.path()).error().what, HasSubstr("add_bos_token"));
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  EXPECT_THAT(load_tokenizer(folder.path()).error().what, HasSubstr("\"x\" is not a token id"));
}

TEST(LoadTokenizer, VocabAndMerges) {
  const TempFolder folder;
  const Json tiny = tiny_tokenizer_json();
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : tiny["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  folder.write("vocab.json", tiny["model"]["vocab"].dump());
  folder.write("merges.txt", merges);
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().what;
  EXPECT_EQ((*tokenizer)->encode(" the thing", {}), (Ids{258, 256, 'h', 260}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_THAT(load_tokenizer(folder.path()).error().what, HasSubstr("RobertaTokenizer"));
}

}  // namespace
}  // namespace skiff::text
