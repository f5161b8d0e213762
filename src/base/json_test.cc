#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

namespace skiff {
namespace {

TEST(Json, RefusesWithAReason) {
  EXPECT_FALSE(parse_json("{\"a\":1,}"));
  EXPECT_FALSE(parse_json("{\"a\":\"\xED\xA0\x80\"}"));  // a lone surrogate is not UTF-8
  EXPECT_FALSE(parse_json(""));
  const auto twice = parse_json("{\"a\":1,\"b\":{\"a\":2,\"a\":3}}");
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().what.find("duplicate key \"a\""), std::string::npos);
  EXPECT_TRUE(parse_json("{\"a\":{\"a\":1},\"b\":{\"a\":2}}"));
}

TEST(Json, LoneSurrogatesAreReplacementCharacters) {
  const auto text = [](const std::string& escaped) {
    const auto json = parse_json("[\"" + escaped + "\"]");
    return json ? (*json)[0].get<std::string>() : "refused";
  };
  EXPECT_EQ(text(R"(\ud800)"), "\uFFFD");
  EXPECT_EQ(text(R"(\uDFFFx\uDbFf)"), "\uFFFDx\uFFFD");
  EXPECT_EQ(text(R"(\ud83d\ud83d\udea2\udea2)"), "\uFFFD\U0001F6A2\uFFFD");
  EXPECT_EQ(text(R"(\ud800\u0041)"), "\uFFFDA");
  EXPECT_EQ(text(R"(\ud800\\udc00)"), "\uFFFD\\udc00");
  EXPECT_EQ(text(R"(\\ud800)"), R"(\ud800)");
  EXPECT_EQ(text(R"(\\\ud800)"), "\\\uFFFD");
  for (const char* bad : {R"(\ud8)", R"(\ud80g)", R"(\ud800\)", R"(\u+d80)", "\xED\xA0\x80"})
    EXPECT_EQ(text(bad), "refused") << bad;
  // Columns in errors are those of the text as it was sent.
  EXPECT_NE(parse_json(R"(["\ud800" x])").error().what.find("column 11"), std::string::npos);
}

TEST(Json, DepthAndSizeAreBounded) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(8), {.max_depth = 8}));
  EXPECT_FALSE(parse_json(nested(9), {.max_depth = 8}));
  EXPECT_FALSE(parse_json(nested(1000000)));  // neither a crash nor a stack overflow
  EXPECT_FALSE(parse_json("[1,2,3]", {.max_bytes = 6}));
}

// The builder against the library's own, which knows no limits.
TEST(Json, ValuesAreTheLibrarys) {
  const std::string seed =
      R"({"a":[1,-2,3.5e2,"x\u00e9\n",true,null,{"b":{},"c":[]}],"d":{"a":18446744073709551615}})";
  const std::string signs = "{}[],:\"\\0e1-.tn ";
  std::mt19937 random(3);
  int valid = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = seed;
    for (int i = 0; i < trial % 3; ++i)
      text[random() % text.size()] = signs[random() % signs.size()];
    const auto ours = parse_json(text);
    const Json theirs = Json::parse(text, nullptr, false);
    if (!ours) {
      EXPECT_TRUE(theirs.is_discarded() || ours.error().what.find("duplicate") != std::string::npos)
          << text;
      continue;
    }
    ++valid;
    EXPECT_EQ(*ours, theirs) << text;
    const auto ordered = parse_ordered_json(text);
    ASSERT_TRUE(ordered);
    EXPECT_EQ(ordered->dump(), OrderedJson::parse(text).dump()) << text;
  }
  EXPECT_GT(valid, 7000);
}

TEST(Json, KeysOfOrderedObjectsAreBounded) {
  EXPECT_TRUE(parse_ordered_json(R"({"a":1,"b":2})", {.max_keys = 2}));
  const auto many = parse_ordered_json(R"({"a":1,"b":2,"c":3})", {.max_keys = 2});
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().what.find("too many keys"), std::string::npos);
  EXPECT_FALSE(parse_ordered_json(R"({"a":1,"a":2})"));
}

TEST(Fields, NamesFileAndKey) {
  const Json json = {{"n", 3}, {"s", "x"}, {"none", nullptr}, {"o", {{"k", 1.5}}}};
  const Fields fields(json, "config.json");
  EXPECT_EQ(fields.need<int>("n"), 3);
  EXPECT_EQ(fields.get<int>("none", 7), 7);
  EXPECT_FLOAT_EQ(fields.child("o").need<float>("k"), 1.5f);
  EXPECT_EQ(fields.child("absent").get<int>("k", 2), 2);
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { (void)fields.need<int>("m"); }), "config.json: missing key \"m\"");
  EXPECT_EQ(message([&] { (void)fields.need<int>("s"); }),
            "config.json: key \"s\" has the wrong type: \"x\"");
}

TEST(Json, MissingFileIsNamed) {
  EXPECT_THROW(
      {
        try {
          read_json_file("/no/such/file.json");
        } catch (const LoadError& e) {
          EXPECT_NE(std::string(e.what()).find("/no/such/file.json"), std::string::npos);
          throw;
        }
      },
      LoadError);
}

}  // namespace
}  // namespace skiff
