// Constraints that name special tokens, and the reasoning before an answer: what is a token is no
// text, and the form begins behind the end of the reasoning.
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/matching_testing.h"

namespace skiff::grammar {
namespace {

using testing::with_special;

// Follows the tokens, and checks each against the mask.
bool follows(const std::shared_ptr<const Grammar>& grammar, const std::vector<int32_t>& tokens) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  for (const int32_t token : tokens) {
    const bool filled = matcher.fill(mask);
    const auto word = mask[static_cast<size_t>(token) / 32];
    const bool allowed = filled && (word >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
    EXPECT_EQ(matcher.accept(token), allowed) << token;
    if (!allowed) return false;
  }
  return matcher.is_complete();
}

struct Case {
  std::string tag;
  std::vector<std::string> good, bad;  // [[x]] stands for the token, x for its spelling
};

// The special tokens <c>, </c> and <x>; 256 is <c>.
class SpecialTokens : public ::testing::Test {
 protected:
  std::vector<int32_t> tokens_of(std::string_view text) const {
    std::vector<int32_t> out;
    while (!text.empty()) {
      const auto end = text.starts_with("[[") ? text.find("]]") : text.npos;
      if (end == text.npos) {
        out.push_back(static_cast<uint8_t>(text.front()));
        text.remove_prefix(1);
        continue;
      }
      const std::string_view name = text.substr(2, end - 2);
      out.push_back(name == "<c>" ? 256 : name == "</c>" ? 257 : 258);
      text.remove_prefix(end + 2);
    }
    return out;
  }
  void expect(const Constraint& constraint, const std::vector<std::string>& good,
              const std::vector<std::string>& bad) const {
    const auto grammar = compile(constraint, vocabulary_);
    ASSERT_TRUE(grammar) << constraint.text << ": " << grammar.error().what;
    for (const std::string& text : good)
      EXPECT_TRUE(follows(*grammar, tokens_of(text))) << constraint.text << "\n" << text;
    for (const std::string& text : bad)
      EXPECT_FALSE(follows(*grammar, tokens_of(text))) << constraint.text << "\n" << text;
  }
  const std::shared_ptr<const Vocabulary> vocabulary_ = with_special({"<c>", "</c>", "<x>"});
};

TEST_F(SpecialTokens, AStructuralTagNamesThem) {
  const Case cases[] = {
      {R"({"format":{"type":"tag","begin":"<c>","content":{"type":"regex","pattern":"[0-9]+"},"end":"</c>"}})",
       {"[[<c>]]12[[</c>]]"},
       {"<c>12</c>", "[[<c>]]12</c>", "[[<c>]][[</c>]]", "[[<x>]]12[[</c>]]"}},
      {R"({"format":{"type":"triggered_tags","triggers":["<c>"],"tags":[
          {"begin":"<c>f:","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</c>"}]}})",
       {"", "so", "a [[<c>]]f:1[[</c>]] b [[<c>]]f:2[[</c>]]", "a < b"},
       {"<c>", "a <c>f:1</c>", "[[<c>]]g:1[[</c>]]", "[[<c>]]f:1", "[[<x>]]"}},
      {R"({"format":{"type":"sequence","elements":[{"type":"token","token":258},{"type":"const_string","value":"y"},
          {"type":"token","token":"<x>"}]}})",
       {"[[<x>]]y[[<x>]]"},
       {"<x>y<x>", "y"}},
      {R"({"format":{"type":"tag","begin":{"type":"token","token":"<c>"},"end":{"type":"token","token":257},
          "content":{"type":"any_tokens","exclude_tokens":["<x>"]}}})",
       {"[[<c>]]a[[<c>]]b[[</c>]]"},
       {"[[<c>]]a[[<x>]]b[[</c>]]", "[[<c>]]a[[</c>]]b[[</c>]]"}},
      {R"({"format":{"type":"token_triggered_tags","trigger_tokens":["<c>"],"exclude_tokens":["<x>"],"at_least_one":true,
          "tags":[{"begin":{"type":"token","token":"<c>"},"content":{"type":"const_string","value":"1"},"end":"!"}]}})",
       {"a[[<c>]]1!", "[[<c>]]1![[<c>]]1!z"},
       {"", "a", "[[<x>]][[<c>]]1!", "<x>[[<c>]]1!"}},
  };
  for (const Case& one : cases)
    expect({.kind = ConstraintKind::kStructuralTag, .text = one.tag}, one.good, one.bad);
}

// Nothing but a structural tag names them, so nothing else allows them.
TEST_F(SpecialTokens, TextHoldsNone) {
  expect({.kind = ConstraintKind::kRegex, .text = "<c>.*"}, {"<c>x"}, {"[[<c>]]x", "<c>[[<x>]]"});
  expect({.kind = ConstraintKind::kGrammar, .text = "root ::= [^a]*"}, {"b"}, {"[[<c>]]", "\xFF"});
  expect({.kind = ConstraintKind::kStructuralTag, .text = R"({"format":{"type":"any_text"}})"},
         {"", "any <c>", "\xC3"}, {"[[<c>]]", "\xFF"});
}

TEST_F(SpecialTokens, AFormBeginsBehindTheReasoning) {
  const ReasoningMarks token{.begin = "<c>", .end = "</c>", .inside = true};
  Constraint constraint{.kind = ConstraintKind::kRegex, .text = "[0-9]+", .reasoning = token};
  expect(
      constraint, {"so {} [[<x>]] 1[[</c>]]12", "[[</c>]]\n\n1"},
      {"12", "so", "so[[</c>]]", "so</c>12", "</c>[[</c>]]7", "[[</c>]]x", "[[</c>]]1[[</c>]]1"});
  constraint.reasoning.inside = false;
  expect(constraint, {"12", "[[<c>]]hm[[</c>]]\n12"},
         {"hm[[</c>]]12", "<c>hm[[</c>]]12", "[[<c>]]12", "\n12"});
  constraint.reasoning = {.begin = "<think>", .end = "</think>", .inside = true};
  expect(constraint, {"a < b</think>\n5", "</think>5", "</</think>5"}, {"a</think", "a</think>x"});
  constraint.reasoning = {
      .begin = "<c>", .end = "</c>", .content = "<r>", .content_end = "</r>", .inside = true};
  expect(constraint, {"[[</c>]]\n\n<r>\n1\n</r>", "[[</c>]]1"},
         {"[[</c>]]<r>1", "[[</c>]]<r>x</r>"});
}

TEST_F(SpecialTokens, CallsStandInPlaceOfTheForm) {
  const Constraint constraint{.kind = ConstraintKind::kJsonSchema,
                              .text = R"({"const":{"a":1}})",
                              .calls = R"({"format":{"type":"tag","begin":"<c>","end":"</c>",
      "content":{"type":"json_schema","json_schema":{"type":"integer"}}}})",
                              .reasoning = {.begin = "<t>", .end = "</t>"}};
  expect(constraint,
         {R"({"a":1})", "[[<c>]]3[[</c>]]", "<t>x</t>\n[[<c>]]3[[</c>]]", "<t></t>{\"a\":1}"},
         {"3", R"({"a":1}[[<c>]]3[[</c>]])", "[[<c>]]{}[[</c>]]", "<t>[[<c>]]3[[</c>]]"});
  Constraint bad = constraint;
  bad.calls = R"({"format":{"type":"sequence","elements":[{"type":"json_schema","json_schema":
      {"properties":{"a":{"uniqueItems":true}}}}]}})";
  const auto refused = compile(bad, vocabulary_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "/calls/format/elements/0/json_schema/properties/a/uniqueItems");
}

// The styles in which arguments are not one JSON object.
TEST_F(SpecialTokens, ArgumentsInTags) {
  const std::string schema = R"({"type":"object","properties":{
      "s":{"type":"string","maxLength":6},"n":{"type":"integer"},"e":{"type":"string","enum":["p","q r"]},
      "o":{"type":["string","null"]},"l":{"type":"array","items":{"type":"boolean"}}},
      "required":["s"],"additionalProperties":false})";
  const auto with = [&](const std::string& style) {
    return Constraint{.kind = ConstraintKind::kStructuralTag,
                      .text = R"({"format":{"type":"json_schema","style":")" + style +
                              R"(","json_schema":)" + schema + "}}"};
  };
  const auto qwen = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  expect(
      with("qwen_xml"),
      {qwen("s", "a \"<b"), qwen("s", "") + qwen("n", "12"), qwen("s", "\n\n") + qwen("e", "q r"),
       qwen("s", "x") + qwen("o", "null") + qwen("l", "[true, false]")},
      {"", qwen("n", "1"), qwen("s", "1234567"), qwen("s", "x") + qwen("n", "y"),
       qwen("s", "x") + qwen("e", "r"), qwen("s", "x") + qwen("z", "1"),
       "<parameter=s>x</parameter>", qwen("s", "x") + qwen("l", "[1]")});
  expect(with("glm_xml"), {"<arg_key>s</arg_key>\n<arg_value>ab</arg_value>\n"},
         {"<arg_key>s</arg_key>\n<arg_value>\nab</arg_value>\n",
          "<arg_key>s</arg_key>\n<arg_value>ab\n</arg_value>\n"});
  expect(with("minimax_xml"), {"<parameter name=\"s\">ab</parameter>\n"},
         {"<parameter name=\"s\">"});
  const auto dsml = [](const std::string& key, const char* text, const std::string& value) {
    return "<｜DSML｜parameter name=\"" + key + "\" string=\"" + text + "\">" + value +
           "</｜DSML｜parameter>\n";
  };
  expect(with("deepseek_xml"),
         {dsml("s", "true", "ab") + dsml("n", "false", "1"),
          dsml("s", "true", "ab") + dsml("o", "false", "null")},
         {dsml("s", "false", "ab"), dsml("s", "true", "ab") + dsml("n", "true", "1")});
  expect(with("python"),
         {R"(s="a\"\n")", R"(s="é", n=-3, o=None, l=[True,False])", R"(s="a", e="q r")"},
         {"", "s='a'", R"(s="\u0041\ud83d\ude00")", R"(s="a",n=1)", R"(s="a", l=[true])"});
}

TEST_F(SpecialTokens, WhatANotationCannotFollowIsRefused) {
  for (
      const char* schema :
      {R"({"type":"object","patternProperties":{"^a":{"type":"string"}}})",
       R"({"type":"object","propertyNames":{"maxLength":3}})", R"({"enum":[{"a":1}]})",
       R"({"type":"object","properties":{"a>b":{"type":"string"}}})", R"({"type":"string"})",
       R"({"type":"object","properties":{"a":{"type":"integer"}},"maxProperties":0,"required":["a"]})"}) {
    const auto refused =
        compile({.kind = ConstraintKind::kStructuralTag,
                 .text = std::string(R"({"format":{"type":"json_schema","style":"qwen_xml",
                                  "json_schema":)") +
                         schema + "}}"},
                vocabulary_);
    ASSERT_FALSE(refused) << schema;
    EXPECT_TRUE(refused.error().field.starts_with("/format/json_schema")) << refused.error().field;
  }
}

TEST_F(SpecialTokens, WhatIsMalformedIsNoQuestionOfSupport) {
  const auto code = [&](ConstraintKind kind, const char* text) {
    const auto refused = compile({.kind = kind, .text = text}, vocabulary_);
    return refused ? Code::kInternal : refused.error().code;
  };
  using enum ConstraintKind;
  for (const char* tag : {R"({"type":"structural_tag"})", "[]", "{", R"({"format":{}})",
                          R"({"format":{"type":"token","token":999}})",
                          R"({"format":{"type":"sequence","elements":[]}})"})
    EXPECT_EQ(code(kStructuralTag, tag), Code::kInvalid) << tag;
  EXPECT_EQ(code(kChoice, "[1]"), Code::kInvalid);
  EXPECT_EQ(code(kJsonSchema, "{"), Code::kInvalid);
  EXPECT_EQ(code(kStructuralTag, R"({"format":{"type":"dispatch"}})"), Code::kUnsupported);
  EXPECT_EQ(code(kJsonSchema, R"({"uniqueItems":true})"), Code::kUnsupported);
}

// A constraint's source makes the same constraint in another process.
TEST_F(SpecialTokens, ASourceComesBackAsItWas) {
  const Constraint all{.kind = ConstraintKind::kRegex,
                       .text = "a\"+",
                       .no_whitespace = true,
                       .whitespace_pattern = " ?",
                       .strict = true,
                       .calls = "{}",
                       .reasoning = {.begin = "<a>",
                                     .end = "</a>",
                                     .content = "<b>",
                                     .content_end = "</b>",
                                     .inside = true},
                       .answers = 4};
  for (const Constraint& one : {all, Constraint{}}) {
    const auto back = read_constraint_source(constraint_source(one));
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_EQ(*back, one);
  }
  for (const char* bad :
       {"", "[]", "{}", R"({"kind":9})", R"({"kind":-1})", R"({"kind":1,"more":2})",
        R"({"kind":1,"answers":0})", R"({"kind":1,"answers":"2"})", R"({"kind":1,"answers":1e9})",
        R"({"kind":1,"text":2})", R"({"kind":1,"inside":"x"})", R"({"kind":1}x)"})
    EXPECT_FALSE(read_constraint_source(bad)) << bad;
}

}  // namespace
}  // namespace skiff::grammar
