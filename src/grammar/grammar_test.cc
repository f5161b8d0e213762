#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "grammar/matching_testing.h"

namespace skiff::grammar {
namespace {

using testing::accepts;
using testing::byte_vocabulary;
using testing::compiled;

struct Case {
  ConstraintKind kind;
  std::string text;
  std::vector<std::string> good, bad;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {ConstraintKind::kChoice,
       R"(["yes","no","nope \"q\""])",
       {"yes", "no", "nope \"q\""},
       {"", "ye", "nop", "yes "}},
      {ConstraintKind::kJsonObject,
       "",
       {"{}", R"({"a":1})", R"({"a": [1, {"b": null}], "c": "\u00e9\ud83d\ude00 é"})",
        "{\n  \"x\": -0.5e+3\n}"},
       {"[]", "1", R"({"a":01})", R"({"a":1,})", R"({"a":"\ud83d"})", "{\"a\":\"\n\"}",
        R"({"a":1}})", " {}", "{} "}},
      {ConstraintKind::kRegex,
       R"(^[a-c]{2,3}(x|yz)?$)",
       {"ab", "abc", "abx", "aabyz"},
       {"a", "abcd", "abxy", "abyzz"}},
      {ConstraintKind::kRegex, R"((a|b)*abb)", {"abb", "ababb", "aaabbabb"}, {"ab", "abba"}},
      {ConstraintKind::kRegex, R"([^a]\w\s\S)", {"é1 é", "x_\tz"}, {"a1 x", "xé x"}},
      {ConstraintKind::kRegex,
       R"((x+x+)+y)",
       {"xxy", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy"},
       {"xy", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}},
      {ConstraintKind::kRegex, R"(a{0,100000}b)", {"b", "aab"}, {"a", "ba"}},
      {ConstraintKind::kRegex, R"(\u{1F600}+\x41\p{L})", {"😀😀Aé"}, {"A", "😀A1"}},
      {ConstraintKind::kGrammar,
       "root ::= expr\nexpr ::= expr [-+] term | term\n"
       "term ::= term \"*\" num | num # left-recursive\nnum ::= [0-9]+ | \"(\" expr \")\"\n",
       {"1", "1+2*3", "(1-2)*(3)+44", "((((7))))"},
       {"", "+1", "1+", "(1", "1)"}},
      {ConstraintKind::kGrammar,
       "root ::= a\na ::= b \"x\" | \"1\"\nb ::= a \"y\" | \"2\"\n",
       {"1", "2x", "1yx", "2xyx", "1yxyx"},
       {"", "x", "1x", "2", "2xy"}},
      {ConstraintKind::kGrammar,
       "root ::= \"a\" root \"b\" | \"\"\n",
       {"", "ab", "aaabbb"},
       {"a", "aab", "ba", "abab"}},
      {ConstraintKind::kGrammar,
       "root ::= (item \",\")* item\nitem ::= [a-z]{1,3} | \"\\\"\" [^\"\\n]* \"\\\"\"",
       {"a", "abc,de", "\"x y\",q"},
       {"abcd", "a,", "\"", ","}},
      {ConstraintKind::kGrammar,
       "start: greeting (\",\" NAME)~1..2\ngreeting: \"hi\" | \"Hello\"i\n"
       "NAME: /[a-z]+/ | \"A\"..\"C\"\n",
       {"hi,bob", "HELLO,A,x"},
       {"hi", "hi,bob,a,b", "hi,D"}},
      {ConstraintKind::kStructuralTag,
       R"({"type":"structural_tag","triggers":["<f"],"structures":[{"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},
          {"begin":"<f=b>","schema":{"const":[1,"x"]},"end":"</f>"}]})",
       {"", "free < text", "<f=a>12</f>", "x<f=a>1</f> y <f=b>[1,\"x\"]</f>."},
       {"<f", "<f=c>", "<f=a>x</f>", "<f=a>1", "<f=a>1</f> <f=b>[]</f>"}},
      {ConstraintKind::kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"sequence","elements":[
          {"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"},
          {"type":"or","elements":[{"type":"const_string","value":"ok"},{"type":"regex","pattern":"[0-9]+"},
          {"type":"json_schema","json_schema":{"type":"object","additionalProperties":false}}]}]}})",
       {"<think>a < b</think>ok", "<think></think>12", "<think>x</think>{}"},
       {"ok", "<think>a", "<think>a</think>", "<think>a</think>okk"}},
  };
  return kCases;
}

TEST(Grammar, AcceptsTheGoodAndRefusesTheBad) {
  for (const Case& one : cases()) {
    const auto grammar = compiled(one.kind, one.text);
    ASSERT_TRUE(grammar) << one.text << ": " << grammar.error().what;
    for (const std::string& text : one.good)
      EXPECT_TRUE(accepts(*grammar, text)) << one.text << "\n" << text;
    for (const std::string& text : one.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << one.text << "\n" << text;
  }
}

std::vector<std::string> words() {
  std::vector<std::string> out = {
      "</f>", "<f=a>", "{\"", "\":", "\",", "\", \"", "abb", "xx", "12",  "é",       "\xC3",
      "null", "true}", "\"}", "]}",  "a\"", "x\":1",  "hi,", "1+", ")*(", "<think>", "},"};
  std::mt19937 random(7);
  const std::string_view letters = "ab1{}[]\",: x<>fé\\";
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (uint64_t k = 2 + random() % 3; k > 0; --k) word += letters[random() % letters.size()];
    out.push_back(word);
  }
  return out;
}

// The mask says for each token what accept() would.
void expect_exact_mask(const Matcher& matcher, const std::string& where) {
  const Vocabulary& vocabulary = matcher.grammar().vocabulary();
  std::vector<uint32_t> mask(vocabulary.mask_words());
  matcher.fill(mask);
  for (int32_t token = 0; token < vocabulary.width(); ++token) {
    Matcher next = matcher;
    const bool bit = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
    ASSERT_EQ(bit, next.accept(token))
        << where << ", token " << token << " \"" << vocabulary.piece(token) << "\"";
  }
}

TEST(Grammar, MasksAreExact) {
  const auto vocabulary = byte_vocabulary(words());
  for (const Case& one : cases()) {
    const auto grammar = compile({.kind = one.kind, .text = one.text}, vocabulary);
    ASSERT_TRUE(grammar);
    for (const std::string& text : one.good) {
      Matcher matcher(*grammar);
      for (size_t i = 0; i < text.size(); ++i) {
        expect_exact_mask(matcher, one.text + " after " + text.substr(0, i));
        ASSERT_TRUE(matcher.accept(static_cast<uint8_t>(text[i])));
      }
      expect_exact_mask(matcher, one.text + " after " + text);
    }
  }
}

// With many plain tokens, masks inside a string of bounded length come from those of an endless
// one.
TEST(Grammar, BoundedStringsHaveExactMasks) {
  std::vector<std::string> many = words();
  std::mt19937 random(5);
  for (int i = 0; i < 700; ++i) {
    std::string word;
    for (uint64_t k = 2 + random() % 6; k > 0; --k) word += static_cast<char>('a' + random() % 26);
    many.push_back(word);
  }
  const auto grammar =
      compile({.kind = ConstraintKind::kJsonSchema,
               .text = R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":7}})"},
              byte_vocabulary(many));
  ASSERT_TRUE(grammar);
  const std::string text = R"(["abcdefg","x\"é", "abcd"])";
  Matcher matcher(*grammar);
  for (size_t i = 0; i < text.size(); ++i) {
    expect_exact_mask(matcher, text.substr(0, i));
    ASSERT_TRUE(matcher.accept(static_cast<uint8_t>(text[i])));
  }
}

// Beside declared names, any other name may come: most tokens are plain characters of a string, and
// the walk takes them without a look as soon as no declared name can be meant any more.
TEST(Grammar, MasksOfNamesAreExact) {
  const auto grammar = compile(
      {.kind = ConstraintKind::kJsonSchema,
       .text =
           R"({"type":"object","properties":{"name":{"type":"null"},"nation":{"type":"null"}}})"},
      byte_vocabulary({"na",       "nam",       "name",   "name\"",  "names",   "namesake",
                       "nat",      "natio",     "nation", "nations", "nationë", "nation\xc3",
                       "nation\"", "nationa\"", "b",      "ba",      "bar",     "bar\"",
                       "ba\xc3",   "\xa9",      "\"n",    "\"nb",    "\"ba",    "\"bar",
                       "bar\n",    "b\\"}));
  ASSERT_TRUE(grammar);
  const std::string text = R"({"name":null,"nationx":1,"bar":"nation","names":[]})";
  Matcher matcher(*grammar);
  for (size_t i = 0; i < text.size(); ++i) {
    expect_exact_mask(matcher, text.substr(0, i));
    ASSERT_TRUE(matcher.accept(static_cast<uint8_t>(text[i])));
  }
}

// Whatever is drawn from the masks, the text can be completed and is never stuck.
TEST(Grammar, RandomWalksAreNeverStuck) {
  const auto vocabulary = byte_vocabulary(words());
  std::mt19937 random(11);
  for (const Case& one : cases()) {
    const auto grammar = compile({.kind = one.kind, .text = one.text}, vocabulary);
    for (int walk = 0; walk < 8; ++walk) {
      Matcher matcher(*grammar);
      std::vector<uint32_t> mask(vocabulary->mask_words());
      for (int step = 0; step < 60 && !matcher.is_terminated(); ++step) {
        ASSERT_TRUE(matcher.fill(mask)) << one.text;
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary->width(); ++token)
          if (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) allowed.push_back(token);
        ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]));
      }
    }
  }
}

TEST(Grammar, RollbackAndCopiesGoOnAlone) {
  const auto grammar = compiled(ConstraintKind::kRegex, "(ab)+c");
  Matcher matcher(*grammar);
  for (const char c : std::string("abab")) ASSERT_TRUE(matcher.accept(c));
  Matcher copy = matcher;
  ASSERT_TRUE(copy.accept('c'));
  EXPECT_TRUE(copy.is_terminated());
  EXPECT_FALSE(matcher.is_complete());
  copy.rollback(3);
  EXPECT_EQ(copy.num_tokens(), 2u);
  EXPECT_TRUE(copy.accept('c'));
  EXPECT_EQ(matcher.accepts(std::vector<int32_t>{'a', 'b', 'c', 'c'}), 3u);
  EXPECT_EQ(matcher.num_tokens(), 4u);
}

TEST(Grammar, TheEndIsAllowedWhereTheTextIsComplete) {
  const auto grammar = compiled(ConstraintKind::kRegex, "a+");
  const int32_t end = (*grammar)->vocabulary().ends()[0];
  Matcher matcher(*grammar);
  EXPECT_FALSE(matcher.accept(end));
  ASSERT_TRUE(matcher.accept('a'));
  EXPECT_FALSE(matcher.is_terminated());
  EXPECT_TRUE(matcher.accept(end));
  EXPECT_TRUE(matcher.is_terminated());
  std::vector<uint32_t> mask((*grammar)->vocabulary().mask_words());
  EXPECT_FALSE(matcher.fill(mask));
  matcher.rollback(1);
  EXPECT_TRUE(matcher.accept('a'));
}

TEST(Grammar, ForcedTextIsWhatMustCome) {
  const auto grammar = testing::schema(R"({"type":"object","properties":{"name":{"const":"x"}},
    "required":["name"],"additionalProperties":false})");
  Matcher matcher(*grammar);
  EXPECT_EQ(matcher.forced_text(), "{");
  for (const char c : std::string("{\"")) ASSERT_TRUE(matcher.accept(c));
  EXPECT_EQ(matcher.forced_text(), "name\"");
}

// Each character of this text has states of its own. Masks are lost where states are made anew, so
// that less memory is used.
TEST(Grammar, ALongTextIsSeldomFollowedAgain) {
  Limits small;
  small.max_memory = 256u << 10;
  const auto grammar =
      compile({.kind = ConstraintKind::kRegex, .text = "[ab]{0,100000}"}, byte_vocabulary(), small);
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask((*grammar)->vocabulary().mask_words());
  int times = 0;
  for (int i = 0; i < 1500; ++i) {
    ASSERT_TRUE(matcher.fill(mask));
    const size_t before = (*grammar)->bytes_used();
    ASSERT_TRUE(matcher.accept('a'));
    if ((*grammar)->bytes_used() < before) ++times;
  }
  EXPECT_LE(times, 10);
}

// Small bounds on memory make the states anew in mid-text, which changes no answer.
TEST(Grammar, StatesAreMadeAnewWithoutNotice) {
  Limits small;
  small.max_memory = 1;
  const auto vocabulary = byte_vocabulary(words());
  for (const Case& one : cases()) {
    const auto grammar = compile({.kind = one.kind, .text = one.text}, vocabulary, small);
    ASSERT_TRUE(grammar);
    for (const std::string& text : one.good) EXPECT_TRUE(accepts(*grammar, text)) << text;
    for (const std::string& text : one.bad) EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

// What walks lists in pairs, or patterns for each name, is charged for it.
TEST(Grammar, SchemasPayForTheirLists) {
  std::string up, down, members, patterns;
  for (int i = 0; i < 8000; ++i) {
    up += fmt::format("{}{}", i ? "," : "", 10'000 + i);
    down += fmt::format("{}{}", i ? "," : "", 18'000 - i);
  }
  const std::string enums =
      fmt::format(R"("$defs":{{"a":{{"enum":[{}]}},"b":{{"enum":[{}]}}}})", up, down);
  EXPECT_FALSE(testing::schema(
      fmt::format(R"({{{},"allOf":[{{"$ref":"#/$defs/a"}},{{"$ref":"#/$defs/b"}}]}})", enums)));
  EXPECT_TRUE(accepts(*testing::schema(R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}]})"), "3"));
  for (int i = 0; i < 300; ++i)
    members += fmt::format(R"({}"k{}":{{"type":"null"}})", i ? "," : "", i);
  for (int i = 0; i < 6; ++i)
    patterns += fmt::format(R"({}"^[x-z]{}":{{"type":"null"}})", i ? "," : "", i);
  const auto known = testing::schema(fmt::format(
      R"({{"type":"object","properties":{{{}}},"patternProperties":{{{}}},"additionalProperties":false}})",
      members, patterns));
  EXPECT_TRUE(known && accepts(*known, R"({"k7":null,"y3":null})"));
  EXPECT_FALSE(known && accepts(*known, R"({"k7":null,"y7":null})"));
}

// A value of a list is not looked for in the list that it is from.
TEST(Grammar, LongListsOfValuesAreReadOnce) {
  std::string values;
  for (int i = 0; i < 40'000; ++i) values += fmt::format("{}{}", i ? "," : "", 10'000 + i);
  const std::clock_t begin = std::clock();
  const auto grammar = testing::schema(fmt::format(R"({{"enum":[{}]}})", values));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 1.5);
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_TRUE(accepts(*grammar, "49999"));
}

// The pattern of whitespace counts among the constraint's bytes.
TEST(Grammar, WhitespaceHasABound) {
  const Constraint constraint{.kind = ConstraintKind::kJsonObject,
                              .whitespace_pattern = std::string((256 << 10) + 1, '|')};
  const auto refused = compile(constraint, byte_vocabulary());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("262145 bytes"), std::string::npos) << refused.error().what;
}

TEST(Grammar, HostileConstraintsEndByFuel) {
  std::string nested(400, '('), pairs = "root ::= ", wide = R"({"enum":[)";
  for (int i = 0; i < 3000; ++i) pairs += "(\"a\"?){1000} ";
  for (int i = 0; i < 12000; ++i) wide += (i ? ",\"v" : "\"v") + std::to_string(i * 7919) + "\"";
  wide += "]}";
  const std::vector<std::pair<ConstraintKind, std::string>> hostile = {
      {ConstraintKind::kRegex, nested},
      {ConstraintKind::kRegex, "((a{1,1000}){1,1000}){1,1000}"},
      {ConstraintKind::kRegex, "a{99999999}"},
      {ConstraintKind::kJsonSchema, std::string(5000, '[')},
      {ConstraintKind::kJsonSchema, R"({"$ref":"#"})"},
      {ConstraintKind::kJsonSchema, R"({"type":"string","minLength":1000000000})"},
      {ConstraintKind::kGrammar, "root ::= root"},
      {ConstraintKind::kGrammar, "root ::= \"a\" root"}};
  for (const auto& [kind, text] : hostile) EXPECT_FALSE(compiled(kind, text)) << text.substr(0, 60);
  for (const auto& [kind, text] :
       {std::pair(ConstraintKind::kGrammar, pairs), std::pair(ConstraintKind::kJsonSchema, wide)}) {
    const auto grammar = compiled(kind, text);  // either is fine, as long as it ends
    if (grammar) Matcher(*grammar).accept('a');
  }
}

// 131,000 calls one after the other, and elements that may each be the last.
TEST(Grammar, LongRulesNeedNoDeepStack) {
  std::string calls = "root ::= ", places = R"({"type":"array","items":false,"prefixItems":[)";
  for (int i = 0; i < 131'000; ++i) calls += "a ";
  for (int i = 0; i < 10'000; ++i) places += i ? R"(,{"type":"object"})" : R"({"type":"object"})";
  const auto grammar = compiled(ConstraintKind::kGrammar, calls + "\na ::= \"x\"");
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_TRUE(Matcher(*grammar).accept('x'));
  const auto list = testing::schema(places + "]}");
  EXPECT_TRUE(list && accepts(*list, "[{},{}]"));
}

// A group of n rules becomes n^3 expressions.
TEST(Grammar, LeftRecursionEndsByFuel) {
  const auto circle = [](int size) {
    std::string text = "root ::= r0";
    for (int i = 0; i < size; ++i)
      text += fmt::format("\nr{} ::= r{} \"x\" | \"y\"", i, (i + 1) % size);
    return compiled(ConstraintKind::kGrammar, text);
  };
  EXPECT_TRUE(accepts(*circle(20), "yxxx"));
  EXPECT_FALSE(circle(4990));
}

// The states of this pattern are 2^n. A first mask that would need too many is a refusal, a later
// one is no mask at all.
TEST(Grammar, AMaskEndsByFuelAndTheMatcherSaysSo) {
  Limits tight;
  tight.step_fuel = 200;
  const auto vocabulary = byte_vocabulary(words());
  const auto first =
      compile({.kind = ConstraintKind::kRegex, .text = "(.*a.{24}b)"}, vocabulary, tight);
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().what.find("fuel"), std::string::npos);
  const auto later =
      compile({.kind = ConstraintKind::kRegex, .text = "-(.*a.{24}b)"}, vocabulary, tight);
  ASSERT_TRUE(later) << later.error().what;
  Matcher matcher(*later);
  ASSERT_TRUE(matcher.accept('-'));
  std::vector<uint32_t> mask(vocabulary->mask_words());
  EXPECT_FALSE(matcher.fill(mask));
  for (const uint32_t word : mask) EXPECT_EQ(word, 0u);
}

// The last letter but eight decides, so each text has states of its own, and texts share some.
constexpr char kLookBack[] = "[ab]*a[ab]{8}c";

// For each place of a text, whether there is a mask, up to the first where there is none.
std::string masks_along(const std::shared_ptr<const Grammar>& grammar, std::string_view text,
                        int answers = 1) {
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  Matcher matcher(grammar, answers);
  std::string out;
  for (const char c : text) {
    if (!matcher.fill(mask)) return out + 'n';
    out += 'y';
    EXPECT_TRUE(matcher.accept(c)) << text;
  }
  return out;
}

// Whether a mask's fuel suffices depends on the text alone: not on what other texts have been
// followed, on how often, or on whether what they taught was forgotten.
TEST(Grammar, AMaskCostsTheSameWhateverWasKnownBefore) {
  const auto vocabulary = byte_vocabulary(
      {"ab", "aab", "abb", "abab", "babab", "aabbab", "bbbbba", "ababababab", "aaaaaaaaaaaa"});
  const std::string text = "abaabbabaabab";
  int partly = 0;
  for (int64_t fuel = 100; fuel < 6000; fuel = fuel * 5 / 4) {
    Limits limits;
    limits.step_fuel = fuel;
    const Constraint constraint{.kind = ConstraintKind::kRegex, .text = kLookBack};
    const auto alone = compile(constraint, vocabulary, limits);
    if (!alone) continue;
    const std::string wanted = masks_along(*alone, text);
    partly += wanted.find('n') != wanted.npos && wanted.find('y') != wanted.npos;
    EXPECT_EQ(masks_along(*alone, text), wanted) << "again, with fuel " << fuel;
    limits.max_memory = 1;
    const auto forgetful = compile(constraint, vocabulary, limits);
    limits.max_memory = Limits{}.max_memory;
    const auto shared = compile(constraint, vocabulary, limits);
    ASSERT_TRUE(forgetful && shared);
    for (const char* other : {"abaabbabaa", "bbbbbbbbbbbbb", "abaabbababbbb", "aaaaaaaaaaaaaa"})
      masks_along(*shared, other);
    EXPECT_EQ(masks_along(*shared, text), wanted) << "in company, with fuel " << fuel;
    EXPECT_EQ(masks_along(*forgetful, text), wanted) << "with little memory, with fuel " << fuel;
  }
  EXPECT_GT(partly, 0);
}

// The same where a search says which intersections are empty.
TEST(Grammar, ASearchCostsTheSameWhateverWasKnownBefore) {
  const auto vocabulary = byte_vocabulary({"ab", "ba", "abab", "bbaa", "aaab"});
  const Constraint constraint{
      .kind = ConstraintKind::kJsonSchema,
      .text = R"({"type":"string","allOf":[{"pattern":"a.{4}e"},{"pattern":"b.{5}f"}]})"};
  const std::string text = "\"abbabaab";
  int partly = 0;
  for (int64_t fuel = 1000; fuel < 400'000; fuel *= 2) {
    Limits limits;
    limits.step_fuel = fuel;
    const auto alone = compile(constraint, vocabulary, limits);
    const auto shared = compile(constraint, vocabulary, limits);
    if (!alone) continue;
    const std::string wanted = masks_along(*alone, text);
    partly += wanted.find('n') != wanted.npos && wanted.find('y') != wanted.npos;
    masks_along(*shared, "\"babbabab");
    masks_along(*shared, "\"abbaabba");
    EXPECT_EQ(masks_along(*shared, text), wanted) << "with fuel " << fuel;
  }
  EXPECT_GT(partly, 0);
}

// A text that needs too much costs others nothing: what they have learned stays, and nothing is
// compiled or followed again.
TEST(Grammar, AMaskWithoutFuelTakesNothingFromOthers) {
  Limits limits;
  limits.step_fuel = 800;
  const auto grammar = compile({.kind = ConstraintKind::kRegex, .text = "x[ab]{5}|-(.*a.{24}b)"},
                               byte_vocabulary(words()), limits);
  ASSERT_TRUE(grammar) << grammar.error().what;
  EXPECT_EQ(masks_along(*grammar, "xabab"), "yyyyy");
  EXPECT_EQ(masks_along(*grammar, "-a"), "yn");
  const size_t learned = (*grammar)->bytes_used();
  EXPECT_EQ(masks_along(*grammar, "xabab"), "yyyyy");
  EXPECT_EQ(masks_along(*grammar, "-a"), "yn");
  EXPECT_GE((*grammar)->bytes_used(), learned);
}

// Each answer has the same part, whatever the others need; from some number of them on, the part
// becomes no smaller.
TEST(Grammar, AnswersShareTheFuelOfAStep) {
  Limits limits;
  limits.step_fuel = 4000;
  const auto grammar = compile({.kind = ConstraintKind::kRegex, .text = kLookBack},
                               byte_vocabulary(words()), limits);
  ASSERT_TRUE(grammar);
  const std::string text = "abaabbabaabab", all(text.size(), 'y');
  EXPECT_EQ(masks_along(*grammar, text, 1), all);
  const std::string most = masks_along(*grammar, text, limits.most_shares);
  EXPECT_NE(most, all);
  EXPECT_EQ(masks_along(*grammar, text, 8 * limits.most_shares), most);
  EXPECT_EQ(masks_along(*grammar, text, 1), all) << "what was learned is shared, not its fuel";
}

TEST(Grammar, PatternsEndByTheirBounds) {
  const auto times = [](int count, const char* text) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  const std::vector<std::pair<ConstraintKind, std::string>> hostile = {
      {ConstraintKind::kRegex, "a" + times(200'000, "?")},
      {ConstraintKind::kRegex, "a" + times(100'000, "+?")},
      {ConstraintKind::kRegex, times(100'000, "\\W")},
      {ConstraintKind::kRegex, times(50'000, "\\p{L}")},
      {ConstraintKind::kRegex, "(^" + times(900, "|^") + ")" + times(100'000, "a")},
      {ConstraintKind::kGrammar, "root ::= \"a\"" + times(60'000, "{2}")},
      {ConstraintKind::kGrammar, "start: \"a\"" + times(60'000, "~2")}};
  for (const auto& [kind, text] : hostile) EXPECT_FALSE(compiled(kind, text)) << text.substr(0, 60);
  EXPECT_TRUE(accepts(*compiled(ConstraintKind::kRegex, "^" + times(1000, "\\p{L}")),
                      times(1000, "\u00e9")));
}

TEST(Grammar, ErrorsNameThePlace) {
  const auto bad = [](ConstraintKind kind, std::string_view text) {
    return compiled(kind, text).error();
  };
  EXPECT_EQ(
      bad(ConstraintKind::kJsonSchema, R"({"properties":{"a/b":{"not":{"type":"null"}}}})").field,
      "/properties/a~1b/not");
  EXPECT_NE(bad(ConstraintKind::kGrammar, "root ::= a\nb ::= \"x\"").what.find("\"a\""),
            std::string::npos);
  EXPECT_NE(bad(ConstraintKind::kRegex, "(?=a)").what.find("look-around"), std::string::npos);
  EXPECT_EQ(
      bad(ConstraintKind::kStructuralTag,
          R"({"format":{"type":"sequence","elements":[{"type":"json_schema","json_schema":{"not":{"type":"null"}}}]}})")
          .field,
      "/format/elements/0/json_schema/not");
}

}  // namespace
}  // namespace skiff::grammar
