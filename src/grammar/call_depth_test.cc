// Constraints whose every text needs more rules within each other than the machine follows are
// refused with the place, and all others are followed to their end.
#include "grammar/call_depth.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "grammar/machine.h"
#include "grammar/matching_testing.h"

namespace skiff::grammar {
namespace {

using testing::accepts;
using testing::compiled;

// A chain of rules of random forms, its least depth, and a text of it.
struct Chain {
  std::string grammar = "root ::= r0\n";
  uint32_t depth = 0;
  std::string text;
};

Chain chain_of(uint32_t depth, std::mt19937& random) {
  Chain out;
  std::string end;
  for (int i = 0; out.depth < depth; ++i) {
    const std::string next = fmt::format("r{}", i + 1);
    std::string form;
    switch (random() % 6) {
      case 0:  // nothing follows the call
        form = fmt::format("\"a\" {}", next);
        out.text += "a";
        break;
      case 1:
        form = fmt::format("{}{{1,1}}", next);
        break;
      case 2:
        form = fmt::format("\"b\" {} \"x\"?", next);
        out.text += "b", ++out.depth;
        break;
      case 3:
        form = fmt::format("\"c\" {}+", next);
        out.text += "c", ++out.depth;
        break;
      case 4:
        form = fmt::format("\"d\" ({0} \"y\" | \"e\" {0} \"z\" \"z\")", next);
        out.text += "d", end.insert(0, "y"), ++out.depth;
        break;
      default:
        form = fmt::format("{} \"w\"", next);
        end.insert(0, "w"), ++out.depth;
        break;
    }
    out.grammar += fmt::format("r{} ::= {}\n", i, form);
    if (out.depth == depth) out.grammar += next + " ::= \"m\"\n";
  }
  out.text += "m" + end;
  return out;
}

TEST(CallDepth, ChainsAreFollowedUpToTheLimit) {
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    const uint32_t depth = kMaxDepth - random() % 3;
    const Chain chain = chain_of(depth, random);
    const auto grammar = compiled(ConstraintKind::kGrammar, chain.grammar);
    ASSERT_TRUE(grammar) << depth << ": " << grammar.error().what;
    EXPECT_TRUE(accepts(*grammar, chain.text)) << depth;
  }
}

TEST(CallDepth, DeeperChainsAreRefusedWithTheRule) {
  std::mt19937 random(4);
  for (int i = 0; i < 6; ++i) {
    const Chain chain = chain_of(kMaxDepth + 1 + random() % 300, random);
    const auto grammar = compiled(ConstraintKind::kGrammar, chain.grammar);
    ASSERT_FALSE(grammar);
    const std::string& what = grammar.error().what;
    EXPECT_NE(what.find("more than 1024 rules within each other"), std::string::npos) << what;
    EXPECT_NE(what.find("rule \"r1"), std::string::npos) << what;
    EXPECT_EQ(what.find("cannot be satisfied"), std::string::npos) << what;
  }
}

// The rule that the message names is the first that lies too deep.
TEST(CallDepth, TheRuleThatIsNamedIsTheFirstTooDeep) {
  std::string grammar = "root ::= \"<\" r1 \">\"\n";
  for (int i = 1; i < 1500; ++i) grammar += fmt::format("r{} ::= \"<\" r{} \">\"\n", i, i + 1);
  const auto made = compiled(ConstraintKind::kGrammar, grammar + "r1500 ::= \"m\"");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().what.find("\"r1025\""), std::string::npos) << made.error().what;
}

// A way around a deep chain makes the constraint one that can be followed, and a left-recursive
// chain is no deep one.
TEST(CallDepth, WaysAroundCount) {
  std::string around = "root ::= r0 | \"k\" root \"k\" | \"m\"\n", left = "root ::= r0\n";
  for (int i = 0; i < 1500; ++i) {
    around += fmt::format("r{} ::= \"<\" r{} \">\"\n", i, i + 1);
    left += fmt::format("r{} ::= r{} \"x\"\n", i, i + 1);
  }
  const auto grammar = compiled(ConstraintKind::kGrammar, around + "r1500 ::= \"m\"");
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_TRUE(accepts(*grammar, "kmk"));
  const auto turned = compiled(ConstraintKind::kGrammar, left + "r1500 ::= r0 \"y\" | \"m\"");
  if (!turned) {
    EXPECT_EQ(turned.error().what.find("within each other"), std::string::npos)
        << turned.error().what;
  }
}

// Lists within lists, `links` deep. The members before the last are references to later and later
// parts of the chain, so that no schema is read far within another.
std::string lists(int links) {
  OrderedJson defs, properties;
  for (int i = 0; i < links; ++i)
    defs[fmt::format("d{}", i)] = {{"type", "array"},
                                   {"minItems", 1},
                                   {"items", {{"$ref", fmt::format("#/$defs/d{}", i + 1)}}}};
  defs[fmt::format("d{}", links)] = {{"type", "null"}};
  for (int i = links; i > 0; i -= 80)
    properties[fmt::format("p{}", i)] = {{"$ref", fmt::format("#/$defs/d{}", i)}};
  properties["all"] = {{"$ref", "#/$defs/d0"}};
  return OrderedJson{{"type", "object"},
                     {"properties", properties},
                     {"required", {"all"}},
                     {"additionalProperties", false},
                     {"$defs", defs}}
      .dump();
}

TEST(CallDepth, SchemasAreRefusedWithTheirPointer) {
  const auto good = testing::schema(lists(900));
  ASSERT_TRUE(good) << good.error().what;
  EXPECT_TRUE(
      accepts(*good, "{\"all\":" + std::string(900, '[') + "null" + std::string(900, ']') + "}"));
  const auto deep = testing::schema(lists(1400));
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().what.find("more than 1024 schemas within each other"), std::string::npos)
      << deep.error().what;
  EXPECT_TRUE(deep.error().field.starts_with("/$defs/d10")) << deep.error().field;
  const auto tag =
      compiled(ConstraintKind::kStructuralTag,
               R"({"format":{"type":"json_schema","json_schema":)" + lists(1400) + "}}");
  ASSERT_FALSE(tag);
  EXPECT_TRUE(tag.error().field.starts_with("/format/json_schema/$defs/d10")) << tag.error().field;
}

}  // namespace
}  // namespace skiff::grammar
