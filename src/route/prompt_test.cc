// Names of prompts' beginnings, and what is remembered by them.
#include "route/prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "route/json_members.h"
#include "route/prefix_cache.h"

namespace skiff::route {
namespace {

Json turn(const std::string& role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

TEST(JsonMembers, FindsWhatIsWritten) {
  std::vector<JsonMember> members;
  ASSERT_TRUE(json_members(R"( {"a": [1, {"b": "]}"}] , "c\"d":"\\" ,"e":null} )", &members));
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0], (JsonMember{"a", R"([1, {"b": "]}"}])"}));
  EXPECT_EQ(members[1], (JsonMember{R"(c\"d)", R"("\\")"}));
  EXPECT_EQ(members[2], (JsonMember{"e", "null"}));
  members.clear();
  EXPECT_TRUE(json_members("{}", &members));
  for (const char* bad : {"", "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1", "{\"a\":1}x",
                          "{\"a\":[}", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":1,}", "{\"a\":]}"})
    EXPECT_FALSE(json_members(bad, &members)) << bad;
  EXPECT_FALSE(
      json_members("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", &members));
}

TEST(Prompt, ALaterTurnBeginsLikeTheEarlierOne) {
  Json body{{"model", "m"}, {"messages", {turn("user", std::string(1000, 'x'))}}};
  const Prompt first = read_prompt(body.dump());
  body["messages"].push_back(turn("assistant", std::string(600, 'y')));
  body["temperature"] = 0.5;
  const Prompt second = read_prompt(body.dump());
  ASSERT_GE(first.blocks.size(), 4u);
  ASSERT_GT(second.blocks.size(), first.blocks.size());
  EXPECT_TRUE(std::equal(first.blocks.begin(), first.blocks.end(), second.blocks.begin()));
  EXPECT_GT(second.tokens, first.tokens);
  body["messages"][0] = turn("user", "z" + std::string(999, 'x'));
  EXPECT_NE(read_prompt(body.dump()).blocks[0], first.blocks[0]);
}

TEST(Prompt, EachBlockDependsOnAllBefore) {
  const std::string same(256, 's');
  const auto one = read_prompt(Json{{"prompt", std::string(256, 'a') + same + same}}.dump());
  const auto other = read_prompt(Json{{"prompt", std::string(256, 'b') + same + same}}.dump());
  ASSERT_EQ(one.blocks.size(), other.blocks.size());
  for (size_t i = 0; i < one.blocks.size(); ++i) EXPECT_NE(one.blocks[i], other.blocks[i]);
}

TEST(Prompt, OrderOfMembersAndOtherFieldsDoNotMatter) {
  const std::string text(600, 't');
  EXPECT_EQ(read_prompt("{\"prompt\":\"" + text + "\",\"n\":2,\"model\":\"m\"}").blocks,
            read_prompt("{\"model\":\"m\",\"prompt\":\"" + text + "\"}").blocks);
}

TEST(Prompt, NamesAreBoundedAndBadBodiesHaveNone) {
  EXPECT_EQ(
      read_prompt(Json{{"prompt", std::string(9000, 'a')}}.dump(), {.max_blocks = 3}).blocks.size(),
      3u);
  const Prompt bad = read_prompt("{\"prompt\": [");
  EXPECT_FALSE(bad.readable);
  EXPECT_EQ(bad.tokens, 1);
}

TEST(Prompt, TokenIdsAndPooledTextsAreThePrompt) {
  for (const char* name :
       {"prompt_token_ids", "query", "queries", "text_1", "text_2", "documents"}) {
    const Json one{{"model", "m"}, {name, {std::string(600, 'a')}}};
    const Json other{{"model", "m"}, {name, {std::string(600, 'b')}}};
    const Prompt read = read_prompt(one.dump());
    EXPECT_GE(read.blocks.size(), 2u) << name;
    EXPECT_GE(read.tokens, 150) << name;
    EXPECT_NE(read.blocks, read_prompt(other.dump()).blocks) << name;
    EXPECT_EQ(read_prompt(one.dump(), {.max_blocks = 1}).blocks.size(), 1u) << name;
  }
}

TEST(Prompt, SeesWhoSetsDisaggregateInfo) {
  EXPECT_TRUE(read_prompt(R"({"disaggregate_info": {}})").disaggregated);
  EXPECT_TRUE(read_prompt(R"({"disaggregate\u005finfo": {}})").disaggregated);
  EXPECT_FALSE(read_prompt(R"({"prompt": "disaggregate_info"})").disaggregated);
}

TEST(PrefixCache, MatchesTheLongestBeginning) {
  PrefixCache cache(100);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{1, 2}), 0u);
  cache.add(std::vector<uint64_t>{1, 2, 3, 4});
  cache.add(std::vector<uint64_t>{1, 2, 9});
  EXPECT_EQ(cache.match(std::vector<uint64_t>{1, 2, 3, 4, 5}), 4u);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{1, 2, 7}), 2u);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{7, 8, 9}), 0u);
  EXPECT_EQ(cache.size(), 5u);
}

TEST(PrefixCache, ForgetsTheTailOfWhatWasUsedLongestAgo) {
  PrefixCache cache(6);
  cache.add(std::vector<uint64_t>{1, 2, 3});
  cache.add(std::vector<uint64_t>{11, 12, 13});
  cache.add(std::vector<uint64_t>{1, 2});
  cache.add(std::vector<uint64_t>{21, 22});  // 3 and 13 go: one for each that came
  EXPECT_EQ(cache.size(), 6u);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{1, 2, 3}), 2u);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{11, 12, 13}), 2u);
  cache.add(std::vector<uint64_t>{31, 32, 33, 34, 35, 36, 37, 38});
  EXPECT_EQ(cache.size(), 6u);
  EXPECT_EQ(cache.match(std::vector<uint64_t>{31, 32, 33, 34, 35, 36, 37, 38}), 6u);
}

}  // namespace
}  // namespace skiff::route
