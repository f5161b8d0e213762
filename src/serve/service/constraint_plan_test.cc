// Calls under a constraint are written so that the reader of the same format finds them, with
// arguments that fit the tools' schemas; and constraints begin behind the reasoning.
#include "serve/service/constraint_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "grammar/matching_testing.h"
#include "serve/service/engine_testing.h"
#include "serve/service/prepare.h"
#include "text/answer/answer_testing.h"
#include "text/answer/call_writing.h"

namespace skiff::service {
namespace {

using answer::CallWriting;
using grammar::testing::accepts;
using grammar::testing::byte_vocabulary;
using grammar::testing::with_special;

const OrderedJson& tools() {
  static const OrderedJson kTools = OrderedJson::parse(R"([
    {"type": "function", "function": {"name": "find_it", "strict": true, "parameters": {"type": "object",
      "properties": {"text": {"type": "string", "maxLength": 5}, "count": {"type": "integer", "maximum": 99},
        "unit": {"type": "string", "enum": ["cm", "in"]}, "note": {"type": ["string", "null"], "maxLength": 3},
        "on": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2}},
      "required": ["text", "unit"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "stop", "strict": true}}])");
  return kTools;
}

std::shared_ptr<const grammar::Grammar> schema_of(const std::string& function) {
  for (const OrderedJson& tool : tools())
    if (const OrderedJson& one = tool["function"]; one["name"] == function)
      return *grammar::testing::schema(one.contains("parameters")
                                           ? one["parameters"].dump()
                                           : R"({"type":"object","additionalProperties":false})");
  return nullptr;
}

// All special tokens that the texts of a row may hold. Words may stand before one in a mark.
std::vector<std::string> marks_in(const CallWriting& row, const answer::CallFormat& format) {
  std::set<std::string> out;
  for (const std::string_view mark : answer::marks_of(format))
    if (mark.size() > 3 && !mark.starts_with("```") && mark.find('=') == mark.npos)
      out.insert(std::string(mark.substr(mark.find("<|") == mark.npos ? 0 : mark.find("<|"))));
  if (!row.needs.empty()) out.insert(std::string(row.needs));
  return {out.begin(), out.end()};
}

// The token that makes the first byte of a text, or the special token that it begins with.
int32_t first_token(const grammar::Vocabulary& vocabulary, std::string_view text) {
  const std::string_view special = vocabulary.special_at(text);
  if (special.empty()) return static_cast<uint8_t>(text.front());
  int32_t token = 0;
  while (vocabulary.piece(token) != grammar::mark_of(special)) ++token;
  return token;
}

// Draws from the masks behind `text`, and prefers what leads to the end.
std::string drawn(const std::shared_ptr<const grammar::Grammar>& grammar, std::mt19937& random,
                  std::string text = {}) {
  const grammar::Vocabulary& vocabulary = grammar->vocabulary();
  grammar::Matcher matcher(grammar);
  std::vector<uint32_t> mask(vocabulary.mask_words());
  for (std::string_view rest = text; !rest.empty();) {
    const int32_t token = first_token(vocabulary, rest);
    EXPECT_TRUE(matcher.accept(token)) << text << ", not " << rest;
    rest.remove_prefix(grammar::written_form(vocabulary.piece(token)).size());
  }
  for (int step = 0; step < 3000; ++step) {
    EXPECT_TRUE(matcher.fill(mask)) << text;
    std::vector<int32_t> allowed, likely;
    for (int32_t token = 0; token < vocabulary.width(); ++token) {
      if (!(mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1)) continue;
      allowed.push_back(token);
      const std::string_view piece = vocabulary.piece(token);
      if (piece.size() != 1 || std::string_view("\"]})\n<").find(piece) != piece.npos)
        likely.push_back(token);
    }
    if (allowed.empty()) return text;
    const auto& from = likely.empty() || random() % 4 == 0 ? allowed : likely;
    const int32_t token = from[random() % from.size()];
    const bool ends = std::ranges::find(vocabulary.ends(), token) != vocabulary.ends().end();
    if (ends) return text;
    EXPECT_TRUE(matcher.accept(token));
    text += grammar::written_form(vocabulary.piece(token));
  }
  return text;
}

struct Call {
  std::string name, arguments;
};

struct Answer {
  std::string content;
  std::vector<Call> calls;
  int broken = 0;
};

Answer read(const std::string& format, const std::string& text, bool one_call = false) {
  const auto options = answer::options_for(format);
  options->types = answer::ToolTypes(tools());
  options->one_call = one_call;
  Answer out;
  for (const answer::AnswerEvent& event :
       answer::events_of(options, text, /*whole=*/true, [] { return 3; })) {
    if (event.part == answer::Part::kContent) out.content += event.text;
    if (event.part == answer::Part::kCallBegin) out.calls.push_back({event.text, ""});
    if (event.part == answer::Part::kArguments) out.calls.back().arguments += event.text;
    if (event.part == answer::Part::kBroken) ++out.broken;
  }
  return out;
}

class CallWritings : public testing::TestWithParam<std::tuple<CallWriting, bool>> {
 protected:
  const CallWriting& row() const { return std::get<0>(GetParam()); }
  std::string name() const { return std::string(row().format); }
  const answer::CallFormat& format() const { return **answer::find_call_format(row().format); }

  // The row's marks as special tokens, or as text.
  std::shared_ptr<const grammar::Grammar> compiled(const answer::CallRules& rules) const {
    const auto tag = answer::call_tag(format(), row(), tools(), rules);
    EXPECT_TRUE(tag);
    const auto vocabulary =
        std::get<1>(GetParam()) ? with_special(marks_in(row(), format())) : byte_vocabulary();
    const auto made = grammar::compile(
        {.kind = grammar::ConstraintKind::kStructuralTag, .text = tag->dump()}, vocabulary);
    EXPECT_TRUE(made) << made.error().field << " " << made.error().what;
    return made ? *made : nullptr;
  }
  void expect_good(const Answer& answer, const std::string& text) const {
    EXPECT_EQ(answer.broken, 0) << text;
    for (const Call& call : answer.calls) {
      const auto schema = schema_of(call.name);
      ASSERT_TRUE(schema) << text;
      EXPECT_TRUE(accepts(schema, call.arguments)) << call.arguments << "\n" << text;
    }
  }
};

TEST_P(CallWritings, RequiredCallsAreReadAsSuch) {
  std::mt19937 random(3);
  const auto grammar = compiled({.required = true, .all_schemas = true});
  ASSERT_TRUE(grammar);
  size_t calls = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string text = drawn(grammar, random);
    const Answer answer = read(name(), text);
    EXPECT_EQ(answer.content, "") << text;
    ASSERT_GE(answer.calls.size(), 1u) << text;
    expect_good(answer, text);
    calls += answer.calls.size();
  }
  EXPECT_GT(calls, 12u) << "none has a second call";
}

TEST_P(CallWritings, ACallAloneIsTheLast) {
  std::mt19937 random(4);
  const auto grammar = compiled({.required = true, .one_call = true, .all_schemas = true});
  ASSERT_TRUE(grammar);
  for (int i = 0; i < 4; ++i) {
    const std::string text = drawn(grammar, random);
    EXPECT_EQ(read(name(), text).calls.size(), 1u) << text;
  }
}

// Free text is allowed, and what a reader takes for a call is one.
TEST_P(CallWritings, StrictToolsLeaveTextFree) {
  std::mt19937 random(5);
  const auto grammar = compiled({});
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(accepts(grammar, "It is 3 > 2 and 'so' on."));
  EXPECT_TRUE(accepts(grammar, ""));
  if (!std::get<1>(GetParam())) {
    EXPECT_TRUE(accepts(grammar, "It is." + std::string(format().message_end)));
  }
  const std::string before = format().only_at_start ? "" : "So: ";
  for (int i = 0; i < 8; ++i) {
    expect_good(read(name(), drawn(grammar, random)), "free text");
    const std::string begun = before + std::string(row().begin) + std::string(row().head);
    const std::string text = drawn(grammar, random, begun);
    const Answer answer = read(name(), text);
    EXPECT_GE(answer.calls.size(), 1u) << text;
    expect_good(answer, text);
  }
}

std::vector<std::tuple<CallWriting, bool>> all_writings() {
  std::vector<std::tuple<CallWriting, bool>> out;
  for (const CallWriting& row : answer::call_writings())
    for (const bool special : {false, true}) out.emplace_back(row, special);
  return out;
}

std::string name_of_writing(const testing::TestParamInfo<std::tuple<CallWriting, bool>>& info) {
  std::string name(std::get<0>(info.param).format);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name + std::to_string(info.index) + (std::get<1>(info.param) ? "Special" : "Text");
}

INSTANTIATE_TEST_SUITE_P(All, CallWritings, testing::ValuesIn(all_writings()), name_of_writing);

TEST(CallWritingTable, EveryFormatHasOne) {
  for (const answer::CallFormat& format : answer::call_formats())
    EXPECT_TRUE(answer::find_call_writing(format, [](auto) { return false; })) << format.name;
}

// A service whose model writes calls as hermes does, and reasons between <think> and </think>.
class Plans : public testing::Test {
 protected:
  Plans() {
    config_.answer = {.reasoning = *answer::find_reasoning_format("think"),
                      .calls = *answer::find_call_format("hermes")};
  }
  Result<Prepared> prepare(Request request) {
    const AnswerSplit split(config_.answer, tokenizer_, &template_);
    ConstraintCompiler compiler(
        grammar::Vocabulary::of(tokenizer_, tokenizer_.vocab_size(), config_.eos), {});
    const bool asks = asks_for_form(request, request.input);
    auto prepared = prepare_request(std::move(request), {.config = config_,
                                                         .tokenizer = tokenizer_,
                                                         .chat_template = &template_,
                                                         .split = &split,
                                                         .constraints = &compiler});
    EXPECT_TRUE(asks || !prepared || !prepared->params.constraint);
    return prepared;
  }
  static Request chat(const char* message, const OrderedJson& kwargs = OrderedJson::object()) {
    text::Conversation conversation;
    conversation.messages = OrderedJson::array({{{"role", "user"}, {"content", message}}});
    conversation.kwargs = kwargs;
    Request request;
    request.input = std::move(conversation);
    request.split_reasoning = true;
    return request;
  }
  static Request with_choice(Request request) {
    request.constraint = {.kind = grammar::ConstraintKind::kChoice, .text = R"(["yes","no"])"};
    request.constraint_field = "guided_choice";
    return request;
  }
  static Request with_tools(Request request, const char* list) {
    std::get<text::Conversation>(request.input).tools = OrderedJson::parse(list);
    request.split_calls = true;
    return request;
  }
  static bool allows(const Prepared& prepared, std::string_view text) {
    const auto follower = prepared.params.constraint->follow();
    std::vector<uint32_t> mask(prepared.params.constraint->mask_words());
    const auto allowed = [&](uint32_t token) {
      return (mask[token / 32] >> (token % 32) & 1) != 0;
    };
    for (const char c : text) {
      std::fill(mask.begin(), mask.end(), 0);
      follower->fill(mask);
      if (!allowed(static_cast<uint8_t>(c))) return false;
      follower->accept(static_cast<uint8_t>(c));
    }
    std::fill(mask.begin(), mask.end(), 0);
    follower->fill(mask);
    return allowed(ByteTokenizer::kEos);
  }

  ServiceConfig config_ = echo_config();
  ByteTokenizer tokenizer_;
  PlainTemplate template_;
};

TEST_F(Plans, AConstraintBeginsBehindTheReasoning) {
  const Request raw = with_choice(chat("x"));
  const auto at = [&](const std::string& prompt) {
    Request request = raw;
    request.input = tokenizer_.encode(prompt, {.add_special = false, .parse_special = true});
    return prepare(std::move(request));
  };
  const auto inside = at("hi <think>\n");
  EXPECT_TRUE(allows(*inside, "so yes no</think>\n\nyes"));
  EXPECT_FALSE(allows(*inside, "yes"));
  const auto closed = at("hi <think>\n\n</think>\n\n");
  EXPECT_TRUE(allows(*closed, "yes"));
  EXPECT_FALSE(allows(*closed, "<think>so</think>yes"));
  const auto open_end = at("hi");
  EXPECT_TRUE(allows(*open_end, "yes"));
  EXPECT_TRUE(allows(*open_end, "<think>so</think>yes"));
  EXPECT_FALSE(allows(*open_end, "so</think>yes"));
}

// PlainTemplate shows the variables, if there are some.
TEST_F(Plans, ThinkingOffBindsTheFirstToken) {
  const auto reasons = [&](const char* kwargs) {
    const auto prepared = prepare(with_choice(chat("hi", OrderedJson::parse(kwargs))));
    EXPECT_TRUE(prepared && allows(*prepared, "no"));
    return allows(*prepared, "<think>so</think>no");
  };
  EXPECT_TRUE(reasons(R"({"enable_thinking":true})"));
  EXPECT_FALSE(reasons(R"({"enable_thinking":false})"));
  EXPECT_FALSE(reasons(R"({"thinking":false})"));
  EXPECT_TRUE(reasons("{}"));  // this template shows no default
  config_.constrain_reasoning = true;
  EXPECT_FALSE(reasons(R"({"enable_thinking":true})"));
}

// The rest of a reply whose reasoning had its tokens is bound from its first token on.
TEST_F(Plans, ABudgetHasAConstraintForTheRest) {
  Request request = with_choice(chat("hi"));
  request.reasoning_budget = 4;
  const auto some = prepare(request);
  ASSERT_TRUE(some && some->answer_constraint);
  EXPECT_TRUE(allows(*some, "<think>so</think>no"));
  Prepared rest = *some;
  rest.params.constraint = some->answer_constraint;
  EXPECT_FALSE(allows(rest, "<think>so</think>no"));
  EXPECT_TRUE(allows(rest, "no"));
  request.reasoning_budget = 0;
  const auto none = prepare(request);
  ASSERT_TRUE(none && !none->answer_constraint);
  EXPECT_FALSE(allows(*none, "<think>so</think>no"));
}

constexpr const char* kTool = R"([{"type":"function","function":{"name":"f","parameters":
    {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}])";
constexpr const char* kStrict =
    R"([{"type":"function","function":{"name":"f","strict":true,"parameters":
    {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}])";

std::string call(const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
}

TEST_F(Plans, CallsThatMustBeMade) {
  Request request = with_tools(chat("hi"), kTool);
  EXPECT_FALSE(prepare(request)->params.constraint);  // auto, and not strict
  request.must_call = true;
  const auto forced = prepare(request);
  ASSERT_TRUE(forced) << forced.error().what;
  EXPECT_TRUE(allows(*forced, call(R"({"a":1})")));
  EXPECT_TRUE(allows(*forced, "<think>so</think>\n" + call(R"({"a":1})")));
  EXPECT_TRUE(allows(*forced, call(R"({"a":1})") + "\n" + call(R"({"a":2})")));
  EXPECT_FALSE(allows(*forced, "so"));
  EXPECT_FALSE(allows(*forced, ""));
  EXPECT_FALSE(allows(*forced, call("{}")));
  request.one_call = true;
  EXPECT_FALSE(allows(*prepare(request), call(R"({"a":1})") + "\n" + call(R"({"a":2})")));
  // A reply that must call has no content whose form could matter.
  EXPECT_FALSE(allows(*prepare(with_choice(request)), "yes"));
}

TEST_F(Plans, WhoAsksForAFormIsSeenBeforeItIsCompiled) {
  const auto asks = [](const Request& request) { return asks_for_form(request, request.input); };
  EXPECT_FALSE(asks(chat("hi")));
  EXPECT_FALSE(asks(with_tools(chat("hi"), kTool)));
  EXPECT_TRUE(asks(with_choice(chat("hi"))));
  EXPECT_TRUE(asks(with_tools(chat("hi"), kStrict)));
  Request forced = with_tools(chat("hi"), kTool);
  forced.must_call = true;
  EXPECT_TRUE(asks(forced));
}

TEST_F(Plans, StrictToolsAndForms) {
  const auto strict = prepare(with_tools(chat("hi"), kStrict));
  ASSERT_TRUE(strict && strict->params.constraint);
  EXPECT_TRUE(allows(*strict, "so"));
  EXPECT_TRUE(allows(*strict, "so " + call(R"({"a":1})")));
  EXPECT_FALSE(allows(*strict, "so " + call("{}")));
  const auto either = prepare(with_choice(with_tools(chat("hi"), kTool)));
  ASSERT_TRUE(either && either->params.constraint);
  EXPECT_TRUE(allows(*either, "yes"));
  EXPECT_TRUE(allows(*either, call("{}")));  // not strict: any object
  EXPECT_FALSE(allows(*either, "so"));
  EXPECT_FALSE(allows(*either, "yes" + call("{}")));
}

TEST_F(Plans, WhatCannotBeForcedIsRefused) {
  const auto refusal = [&](const char* list) {
    Request request = with_tools(chat("hi"), list);
    request.must_call = true;
    const auto prepared = prepare(std::move(request));
    EXPECT_FALSE(prepared);
    return prepared ? Error{} : prepared.error();
  };
  const Error schema = refusal(R"([{"type":"function","function":{"name":"g","parameters":
      {"properties":{"a":{"uniqueItems":true}}}}}])");
  EXPECT_EQ(schema.field, "tools");
  EXPECT_NE(schema.what.find("\"g\" at /properties/a/uniqueItems"), std::string::npos)
      << schema.what;
  EXPECT_EQ(refusal(R"([{"type":"function","function":{"name":"a<b"}}])").field, "tools");
  const Error large = refusal(R"([{"type":"function","function":{"name":"g","parameters":
      {"type":"object","properties":{"a":{"type":"string","pattern":"((a{1,1000}){1,1000}){1,1000}"}}}}}])");
  EXPECT_EQ(large.field, "tools");
  config_.answer.calls = nullptr;
  const Error unknown = refusal(kTool);
  EXPECT_EQ(unknown.field, "tool_choice");
  EXPECT_NE(unknown.what.find("--tool-call-parser"), std::string::npos);
  EXPECT_TRUE(prepare(with_tools(chat("hi"), kStrict)));  // calls are content
}

// Another process makes the same masks of what it was sent.
TEST_F(Plans, ASourceMakesTheSameMasks) {
  Request request = with_tools(chat("hi"), kTool);
  request.must_call = true;
  const auto prepared = prepare(request);
  const SentConstraint sent(prepared->params.constraint->source());
  ConstraintCompiler other(
      grammar::Vocabulary::of(tokenizer_, tokenizer_.vocab_size(), config_.eos), {});
  const auto made = other.compile_source(sent.source());
  ASSERT_TRUE(made) << made.error().what;
  const auto mine = prepared->params.constraint->follow(), theirs = (*made)->follow();
  std::vector<uint32_t> a((*made)->mask_words()), b(a.size());
  for (const char c : "<think>so</think>\n" + call(R"({"a":1})")) {
    std::fill(a.begin(), a.end(), 0), std::fill(b.begin(), b.end(), 0);
    mine->fill(a), theirs->fill(b);
    ASSERT_EQ(a, b);
    mine->accept(static_cast<uint8_t>(c)), theirs->accept(static_cast<uint8_t>(c));
  }
  EXPECT_FALSE(other.compile_source("{"));
}

}  // namespace
}  // namespace skiff::service
