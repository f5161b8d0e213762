// What JSON Schemas allow, where they are refused, and the readings of regular expressions.
#include <gtest/gtest.h>

#include "grammar/matching_testing.h"

namespace skiff::grammar {
namespace {

using testing::accepts;
using testing::compiled;

struct Meaning {
  std::string schema;
  std::vector<std::string> good, bad;
};

void expect_meanings(const std::vector<Meaning>& meanings) {
  for (const Meaning& one : meanings) {
    const auto grammar = testing::schema(one.schema);
    EXPECT_TRUE(grammar) << one.schema << ": " << grammar.error().what;
    if (!grammar) continue;
    for (const std::string& text : one.good)
      EXPECT_TRUE(accepts(*grammar, text)) << one.schema << "\n" << text;
    for (const std::string& text : one.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << one.schema << "\n" << text;
  }
}

struct Refused {
  std::string schema, pointer;
};

void expect_refusals(const std::vector<Refused>& refusals) {
  for (const Refused& one : refusals) {
    const auto grammar = testing::schema(one.schema);
    EXPECT_FALSE(grammar) << one.schema;
    if (grammar) continue;
    EXPECT_EQ(grammar.error().field, one.pointer) << one.schema << "\n" << grammar.error().what;
  }
}

// To a reader for whom formats are annotations, two branches that differ by them alone both fit.
TEST(JsonSchema, FormatsTellNoBranchesApart) {
  expect_refusals({
      {R"({"oneOf":[{"type":"string","format":"date"},{"type":"string","format":"date-time"}]})",
       "/oneOf"},
      {R"({"oneOf":[{"type":"string","format":"ipv4"},{"type":"string","format":"ipv6"}]})",
       "/oneOf"},
      {R"({"oneOf":[{"type":"string","format":"uuid"},{"const":"x"}]})", "/oneOf"},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"type":"string","format":"email"}},
          "required":["a"]},{"type":"object","properties":{"a":{"type":"string","format":"uri"}},
          "required":["a"]}]})",
       "/oneOf"},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"format":"date"}},"required":["a"]},
          {"const":{"a":"x"}}]})",
       "/oneOf"},
  });
  expect_meanings({{R"({"oneOf":[{"type":"string","format":"date"},{"type":"null"}]})",
                    {R"("2024-01-01")", "null"},
                    {R"("x")"}}});
}

// Classes in a class that begins with ^ leave out what any dialect counts to them.
TEST(JsonSchema, InvertedClassesAreTheSmallerSets) {
  struct Case {
    std::string pattern;
    std::vector<std::string> good, bad;
  };
  const std::vector<Case> cases = {
      {R"(^[^\d]$)", {"a", "é", " "}, {"1", "٣", "½"}},
      {R"(^[^\w]$)", {"-", " ", "€"}, {"a", "_", "é", "٣", "\u0301"}},
      {R"(^[^\s]$)", {"a", "é"}, {" ", "\x1c", "\u0085", "\ufeff", "\u2003"}},
      {R"(^[^\S]$)", {" ", "\t", "\u2003"}, {"a", "\ufeff", "\u0085", "\x1f"}},
      {R"(^[^\D]$)", {"1"}, {"a", "٣", "½"}},
      {R"(^[^\W]$)", {"a", "_", "0"}, {"-", "é", "\u0301"}},
      {R"(^[^\d\s]$)", {"a"}, {"1", "٣", " ", "\u0085"}},
      {R"(^[\d]$)", {"1"}, {"٣"}},
      {R"(^[\W]$)", {"-", "€"}, {"a", "é", "\u0301"}},
      {R"(^.$)", {"a", "é"}, {"\n", "\r", "\u2028"}},
  };
  for (const Case& one : cases) {
    const auto grammar = compiled(ConstraintKind::kRegex, one.pattern);
    ASSERT_TRUE(grammar) << one.pattern << ": " << grammar.error().what;
    for (const std::string& text : one.good)
      EXPECT_TRUE(accepts(*grammar, text)) << one.pattern << text;
    for (const std::string& text : one.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << one.pattern << text;
  }
}

// A name that matches by one reading of a pattern and not by another may not come, unless the
// schema names it: then its value meets the schemas of both cases.
TEST(JsonSchema, NamesBetweenTwoReadingsOfAPattern) {
  expect_meanings({
      {R"({"patternProperties":{"^\\w+$":{"type":"integer"}}})",
       {R"({"a":1})", R"({"-":"x"})"},
       {R"({"a":"x"})", R"({"é":"x"})"}},
      {R"({"patternProperties":{"\\d":{"type":"integer"}}})",
       {R"({"a1":1})", R"({"a":"x"})"},
       {R"({"1":"x"})", R"({"٣":"x"})"}},
      {R"({"patternProperties":{"^[a-z]+$":{"type":"integer"}}})",
       {R"({"ab":1})", R"({"A":"x"})", R"({"ab\n\n":"x"})"},
       {R"({"ab":"x"})", R"({"ab\n":"x"})"}},
      {R"({"patternProperties":{"^.$":{"type":"integer"}}})",
       {R"({"a":1})", R"({"ab":"x"})"},
       {R"({"\r":"x"})", "{\"\u2028\":\"x\"}", R"({"a\n":"x"})"}},
      {R"({"patternProperties":{"^[^\\d]$":{"type":"integer"}}})",
       {R"({"a":1})", R"({"1":"x"})"},
       {R"({"٣":"x"})"}},
      {R"({"properties":{"é":{}},"patternProperties":{"\\w":{"type":"integer"}}})",
       {R"({"é":1})"},
       {R"({"é":"x"})"}},
      {R"({"properties":{"b":{}},"required":["é"],"additionalProperties":{"type":"integer"},
          "patternProperties":{"\\w":{"minimum":3}}})",
       {R"({"é":3})"},
       {R"({"é":2})", R"({"é":"x"})"}},
      {R"({"propertyNames":{"pattern":"^\\w$"}})", {R"({"a":1})"}, {R"({"é":1})"}},
  });
}

// What must not match is taken coarsely beyond ASCII: the ranges of Unicode would need a hundred
// times as many states.
TEST(JsonSchema, NamesBesideClassesAreCheap) {
  Limits tight;
  tight.compile_fuel = 100'000;
  const auto grammar = compile({.kind = ConstraintKind::kJsonSchema,
                                .text = R"({"patternProperties":{"^\\w+$":{"type":"integer"}}})"},
                               testing::byte_vocabulary(), tight);
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_TRUE(accepts(*grammar, R"({"a":1,"-":"x"})"));
  EXPECT_FALSE(accepts(*grammar, R"({"é":"x"})"));
}

TEST(JsonSchema, BranchesAreToldApartByEveryReadingOfTheirPatterns) {
  expect_refusals({
      {R"({"oneOf":[{"type":"string","pattern":"^\\w+$"},{"type":"string","pattern":"^é$"}]})",
       "/oneOf"},
      {R"({"oneOf":[{"type":"string","pattern":"^a$"},{"const":"a\n"}]})", "/oneOf"},
      {R"({"oneOf":[{"type":"string","pattern":"^.$"},{"enum":["\r"]}]})", "/oneOf"},
      {R"({"oneOf":[{"type":"object","patternProperties":{"^\\d$":{"const":1}},"required":["٣"]},
          {"type":"object","properties":{"٣":{"const":2}},"required":["٣"]}]})",
       "/oneOf"},
  });
  expect_meanings({
      {R"({"oneOf":[{"type":"string","pattern":"^\\w+$"},{"type":"string","pattern":"^-"}]})",
       {R"("a")", R"("-a")"},
       {R"("é")", R"("+")"}},
  });
}

TEST(JsonSchema, ObjectsAreEqualInAnyOrder) {
  expect_refusals({
      {R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2,"a":1}}]})", "/oneOf"},
      {R"({"oneOf":[{"enum":[[{"a":[1],"b":2}]]},{"const":[{"b":2.0,"a":[1.0]}]}]})", "/oneOf"},
  });
  expect_meanings({
      {R"({"properties":{"a":{"enum":[{"x":1,"y":2}]}},"required":["a"],
          "allOf":[{"properties":{"a":{"const":{"y":2,"x":1}}}}]})",
       {R"({"a":{"x":1,"y":2}})"},
       {R"({"a":{"x":1}})", R"({"a":{"x":1,"y":3}})"}},
      {R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2}},{"const":{"b":2,"a":true}}]})",
       {R"({"a":1,"b":2})", R"({"b":2})", R"({"b":2,"a":true})"},
       {}},
  });
}

// Comparisons by key are charged for, also where they are asked for again and again.
TEST(JsonSchema, ComparisonsOfLargeObjectsArePaidFor) {
  std::string up, down, all;
  for (int i = 0; i < 4000; ++i) {
    up += fmt::format(R"({}"{}":1)", i ? "," : "", 10'000 + i);
    down += fmt::format(R"({}"{}":1)", i ? "," : "", 13'999 - i);
  }
  for (int i = 0; i < 2000; ++i)
    all += fmt::format(R"({}{{"$ref":"#/$defs/{}"}})", i ? "," : "", i % 2 ? "a" : "b");
  EXPECT_FALSE(testing::schema(
      fmt::format(R"({{"$defs":{{"a":{{"const":{{{}}}}},"b":{{"const":{{{}}}}}}},"allOf":[{}]}})",
                  up, down, all)));
}

TEST(JsonSchema, NumbersAreEqualByValue) {
  expect_meanings({
      {R"({"allOf":[{"enum":[-1,3]},{"enum":[18446744073709551615,3]}]})", {"3"}, {"-1"}},
      {R"({"allOf":[{"enum":[9007199254740993,3]},{"enum":[9007199254740992.0,3.0]}]})",
       {"3"},
       {"9007199254740993", "9007199254740992.0"}},
      {R"({"oneOf":[{"const":true},{"const":1}]})", {"true", "1"}, {}},
      {R"({"oneOf":[{"const":18446744073709551615},{"const":-1}]})",
       {"18446744073709551615", "-1"},
       {}},
      {R"({"const":12345678901234567000.0,"maximum":12345678901234567200})",
       {"1.2345678901234567e+19"},
       {"12345678901234567000"}},
  });
  expect_refusals({
      {R"({"enum":[9007199254740993],"const":9007199254740992.0})", ""},
      {R"({"oneOf":[{"const":1},{"const":1.0}]})", "/oneOf"},
      {R"({"const":12345678901234567000.0,"maximum":12345678901234567100})", ""},
  });
}

// Whole numbers beyond 64 bits have come through a double. As a constant such a number is refused,
// as a bound it gives way to the next double on the safe side.
TEST(JsonSchema, WholeNumbersBeyondSixtyFourBits) {
  expect_refusals({
      {R"({"const":123456789012345678901234567890})", "/const"},
      {R"({"properties":{"a":{"enum":[1,[{"b":-9223372036854775809}]]}}})", "/properties/a/enum"},
      {R"({"oneOf":[{"type":"integer","maximum":18446744073709551617},
          {"type":"integer","minimum":18446744073709551618}]})",
       "/oneOf"},
      {R"({"type":"integer","minimum":1.7976931348623157e308})", ""},
  });
  expect_meanings({
      {R"({"type":"integer","maximum":18446744073709551617})",
       {"18446744073709549568"},
       {"18446744073709551999", "18446744073709551618"}},
      {R"({"type":"integer","minimum":-18446744073709551617})",
       {"-18446744073709549568"},
       {"-18446744073709551618"}},
      {R"({"type":"integer","exclusiveMinimum":1e300,"default":123456789012345678901234567890})",
       {"1" + std::string(301, '0')},
       {"1" + std::string(300, '0')}},
      {R"({"type":"integer","minimum":12345678901234567000.0})",
       {"12345678901234569217"},
       {"12345678901234567000"}},
      {R"({"type":"integer","maximum":18446744073709551615})",
       {"18446744073709551615"},
       {"18446744073709551616"}},
  });
}

TEST(JsonSchema, WholeConstantsMayBeWrittenAsIntegers) {
  expect_meanings({
      {R"({"const":1e2})", {"100", "100.0"}, {"1", "1000"}},
      {R"({"enum":[[2.0,0.5]]})", {"[2,0.5]", "[2.0,0.5]"}, {"[2,1]"}},
      {R"({"type":"integer","const":1e15})", {"1000000000000000"}, {"1"}},
      {R"({"const":5})", {"5"}, {"5.0"}},
  });
}

// Half a surrogate pair has become U+FFFD before a schema is read, so what was meant is unknown.
TEST(JsonSchema, HalvesOfSurrogatePairsAreRefused) {
  expect_refusals({
      {R"({"const":"\ud800"})", "/const"},
      {R"({"enum":["a",{"b":["\udc00"]}]})", "/enum"},
      {R"({"enum":["a",{"\udc00":1}]})", "/enum"},
      {R"({"properties":{"a\ud800":{}}})", "/properties"},
      {R"({"required":["\ud800"]})", "/required"},
      {R"({"pattern":"[^\ud800]"})", "/pattern"},
      {R"({"patternProperties":{"\ud800":{}}})", "/patternProperties"},
  });
  expect_meanings({{R"({"const":"😀","description":"\ud800"})", {R"("\ud83d\ude00")"}, {}},
                   {R"({"pattern":"^\\uFFFD$"})", {R"("\ufffd")"}, {}}});
  EXPECT_FALSE(compiled(ConstraintKind::kChoice, R"(["a","\ud800"])"));
  EXPECT_FALSE(compiled(ConstraintKind::kRegex, "a\xEF\xBF\xBD"));
  const auto tag = [](const char* format) {
    return compiled(ConstraintKind::kStructuralTag, fmt::format(R"({{"format":{}}})", format));
  };
  EXPECT_EQ(tag(R"({"type":"const_string","value":"\ud800"})").error().field, "/format/value");
  EXPECT_EQ(tag(R"({"type":"any_text","excludes":["\ud800"]})").error().field, "/format/excludes");
}

TEST(JsonSchema, RefusalsNameTheKeyword) {
  std::string patterns;
  for (int i = 0; i < 7; ++i) patterns += fmt::format(R"({}"^{}":{{}})", i ? "," : "", i);
  expect_refusals({
      {R"({"properties":{"a":{"type":"string","pattern":"a^b"}}})", "/properties/a/pattern"},
      {R"*({"properties":{"a":{"type":"string","pattern":"(^a|$)b"}}})*", "/properties/a/pattern"},
      {R"({"properties":{"a":{"patternProperties":{"a$b":{}}}}})",
       "/properties/a/patternProperties"},
      {R"({"properties":{"a":{"minProperties":2}}})", "/properties/a/minProperties"},
      {R"({"properties":{"a":{"maxProperties":66}}})", "/properties/a/maxProperties"},
      {R"({"properties":{"a":{"properties":{"b":{}},"minProperties":66}}})",
       "/properties/a/minProperties"},
      {R"({"properties":{"a":{"allOf":[{},{"$ref":"#/$defs/d"}]}},"$defs":{"d":{"minProperties":2}}})",
       "/$defs/d/minProperties"},
      {fmt::format(R"({{"properties":{{"a":{{"patternProperties":{{{}}}}}}}}})", patterns),
       "/properties/a/patternProperties"},
  });
  expect_meanings({{R"*({"type":"string","pattern":"(^|b)a($|c)"})*",
                    {R"("a")", R"("ba")", R"("xbac")"},
                    {R"("xa")", R"("ab")"}}});
}

TEST(JsonSchema, QwenParametersByTheNameOfXgrammar) {
  const auto grammar =
      compiled(ConstraintKind::kStructuralTag,
               R"({"format":{"type":"qwen_xml_parameter","json_schema":{"type":"object",
          "properties":{"a":{"type":"integer"}},"required":["a"]}}})");
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_TRUE(accepts(*grammar, "<parameter=a>\n12\n</parameter>\n"));
  EXPECT_FALSE(accepts(*grammar, "<parameter=a>\nx\n</parameter>\n"));
  EXPECT_FALSE(accepts(*grammar, R"({"a":12})"));
}

TEST(JsonSchema, BlanksInsideTheBracesOfGbnf) {
  for (const char* text : {"root ::= \"a\"{ 1 , 2 }", "root ::= \"a\"{1 ,2}"}) {
    const auto grammar = compiled(ConstraintKind::kGrammar, text);
    ASSERT_TRUE(grammar) << text << ": " << grammar.error().what;
    EXPECT_TRUE(accepts(*grammar, "aa"));
    EXPECT_FALSE(accepts(*grammar, "aaa"));
  }
  const auto open = compiled(ConstraintKind::kGrammar, "root ::= \"a\"{ 2 , }");
  ASSERT_TRUE(open) << open.error().what;
  EXPECT_TRUE(accepts(*open, "aaaa"));
  EXPECT_FALSE(accepts(*open, "a"));
}

}  // namespace
}  // namespace skiff::grammar
