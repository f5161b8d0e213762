// Replies in parts: which format reads them, where they start, and how reasoning is bounded.
#include "serve/service/answer_split.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

ServiceConfig thinking_config() {
  ServiceConfig config = echo_config();
  config.answer = {.reasoning = *answer::find_reasoning_format("think"),
                   .calls = *answer::find_call_format("hermes")};
  return config;
}

// The whole reply to a request; its pieces joined.
Reply reply_to(Service& service, Request request) {
  std::promise<Reply> done;
  Reply whole;
  const auto id = service.submit(std::move(request), [&](Reply piece) {
    whole.text += piece.text;
    for (answer::AnswerEvent& event : piece.parts)
      answer::append_event(whole.parts, std::move(event));
    whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    if (!piece.last) return;
    whole.finish = piece.finish;
    whole.usage = piece.usage;
    done.set_value(whole);
  });
  EXPECT_TRUE(id);
  return done.get_future().get();
}

Request greedy(PromptInput input) {
  Request request;
  request.input = std::move(input);
  request.params.temperature = 0;
  request.split_reasoning = request.split_calls = true;
  return request;
}

std::string part(const Reply& reply, answer::Part wanted) {
  std::string out;
  for (const answer::AnswerEvent& event : reply.parts)
    if (event.part == wanted) out += event.text;
  return out;
}

TEST(AnswerSplit, PartsComeBesideTheText) {
  EchoService echo(thinking_config());
  const std::string text =
      "<think>so</think>yes <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
  const Reply reply = reply_to(echo.service, greedy(text));
  EXPECT_EQ(reply.text, text);
  EXPECT_EQ(part(reply, answer::Part::kReasoning), "so");
  EXPECT_EQ(part(reply, answer::Part::kContent), "yes");
  EXPECT_EQ(part(reply, answer::Part::kCallBegin), "f");
  EXPECT_EQ(part(reply, answer::Part::kArguments), "{\"a\": 1}");
  // The tokenizer has a token for each byte: those of the reasoning, and of its closing mark all
  // but the last.
  EXPECT_EQ(reply.usage.reasoning, 2 + 7);
  reply_to(echo.service, greedy(std::string("<tool_call>no call</tool_call>")));
  const std::string metrics = echo.service.metrics();
  EXPECT_NE(metrics.find("fastdeploy:tool_calls_total{model_name=\"echo\"} 1\n"), metrics.npos);
  EXPECT_NE(metrics.find("fastdeploy:tool_call_parse_failures_total{model_name=\"echo\"} 1\n"),
            metrics.npos);
}

TEST(AnswerSplit, WhatIsNotAskedForIsNotSplit) {
  EchoService echo(thinking_config());
  Request request = greedy(std::string("<think>so</think>yes"));
  request.split_reasoning = request.split_calls = false;
  EXPECT_TRUE(reply_to(echo.service, std::move(request)).parts.empty());
  EchoService plain;
  EXPECT_TRUE(reply_to(plain.service, greedy(std::string("<think>so</think>yes"))).parts.empty());
}

TEST(AnswerSplit, OneCallEndsTheReply) {
  EchoService echo(thinking_config());
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  Request request = greedy(call + call);
  request.one_call = true;
  const Reply reply = reply_to(echo.service, std::move(request));
  EXPECT_EQ(reply.finish, Finish::kStop);
  EXPECT_EQ(reply.text, "<tool_call>{\"name\": \"f\"}");
  EXPECT_EQ(part(reply, answer::Part::kCallBegin), "f");
  EXPECT_TRUE(echo.engine.running() == 0);
}

TEST(AnswerSplit, TheReplyStartsWhereThePromptEnds) {
  const ServiceConfig config = thinking_config();
  const ByteTokenizer tokenizer;
  const AnswerSplit split(config.answer, tokenizer, nullptr);
  const auto starts_inside = [&](const std::string& prompt) {
    Prepared prepared;
    prepared.prompt = tokenizer.encode(prompt, {.add_special = false, .parse_special = true});
    split.set_up(greedy(prompt), prepared);
    return prepared.answer->starts_in_reasoning;
  };
  EXPECT_TRUE(starts_inside("user: hi\nassistant: <think>"));
  EXPECT_TRUE(starts_inside("user: hi\nassistant: <think>\n"));
  EXPECT_FALSE(starts_inside("user: hi\nassistant: <think>\n\n</think>\n\n"));
  EXPECT_FALSE(starts_inside("user: what is <think>?\nassistant:"));
}

// The engine repeats its prompt. When the reasoning has had its tokens, its end is put in, and the
// engine goes on from there: it repeats what is now its prompt.
TEST(AnswerSplit, ReasoningEndsWithItsBudget) {
  EchoService echo(thinking_config());
  for (const int budget : {1, 3, 7}) {
    Request request = greedy(std::string("<think>abcdefghij</think>x"));
    request.reasoning_budget = budget;
    request.stop.max_tokens = 60;
    const Reply reply = reply_to(echo.service, std::move(request));
    const std::string thought = std::string("abcdefghij").substr(0, static_cast<size_t>(budget));
    EXPECT_EQ(part(reply, answer::Part::kReasoning), thought);
    EXPECT_EQ(reply.usage.reasoning, budget);
    const std::string begun = "<think>" + thought + "\n</think>\n\n";
    EXPECT_TRUE(reply.text.starts_with(begun + "<think>abc")) << reply.text;
    EXPECT_EQ(reply.finish, Finish::kLength);
    EXPECT_EQ(reply.tokens.size(), 60u);
    const NewSequence rest = echo.engine.seen().back();
    EXPECT_EQ(rest.stop.max_tokens, 60 - static_cast<int>(begun.size()));
  }
}

// Reasoning that stays in the text is bounded, too.
TEST(AnswerSplit, ABudgetHoldsWhereReasoningIsNotSeparated) {
  EchoService echo(thinking_config());
  text::Conversation chat;
  chat.messages = OrderedJson::parse(R"([{"role":"<think>abcdefghij</think>x","content":"y"}])");
  const PromptInput raw = std::string("<think>abcdefghij</think>x:y;");
  for (const PromptInput& input : {PromptInput(chat), raw})
    for (const int budget : {-1, 0, 3}) {
      Request request = greedy(input);
      request.split_reasoning = request.split_calls = false;
      request.reasoning_budget = budget;
      request.stop.max_tokens = 60;
      const Reply reply = reply_to(echo.service, std::move(request));
      const std::string thought = std::string("abc").substr(0, budget < 0 ? 3 : budget);
      const std::string next = budget < 0 ? "defghij</think>x:y;" : "\n</think>\n\n<think>abc";
      EXPECT_TRUE(reply.text.starts_with(fmt::format("<think>{}{}", thought, next)))
          << budget << reply.text;
      EXPECT_TRUE(reply.parts.empty());
    }
}

TEST(AnswerSplit, ABudgetNeverExceedsMaxTokens) {
  EchoService echo(thinking_config());
  // Before, in front of, inside and at the end of the mark that is put in.
  for (const int most : {10, 11, 12, 23}) {
    Request request = greedy(std::string("<think>abcdefghij</think>x"));
    request.reasoning_budget = 4;
    request.stop.max_tokens = most;
    const Reply reply = reply_to(echo.service, std::move(request));
    EXPECT_EQ(reply.finish, Finish::kLength);
    EXPECT_EQ(reply.tokens.size(), static_cast<size_t>(most));
    EXPECT_EQ(reply.usage.reasoning, std::min(most - 7, 4)) << most;  // <think> has seven tokens
  }
}

TEST(AnswerSplit, AStopStringInTheMarkThatIsPutInEndsTheReply) {
  EchoService echo(thinking_config());
  const std::string whole = "<think>abc\n</think>\n\n";
  for (const std::string stop : {"\n\n", "</think>", "\n</"}) {
    Request request = greedy(std::string("<think>abcdefghij</think>x"));
    request.reasoning_budget = 3;
    request.stop.max_tokens = 60;
    request.stop_strings = {stop};
    const size_t before = echo.engine.seen().size();
    const Reply reply = reply_to(echo.service, std::move(request));
    const size_t at = whole.find(stop);
    EXPECT_EQ(reply.finish, Finish::kStop);
    EXPECT_EQ(reply.text, whole.substr(0, at));
    EXPECT_EQ(reply.tokens.size(), at + stop.size());
    EXPECT_EQ(echo.engine.seen().size(), before + 1) << "nothing goes on behind a stop string";
  }
}

TEST(AnswerSplit, NoTokenOfReasoningClosesWhatThePromptHasOpened) {
  EchoService echo(thinking_config());
  Request request = greedy(std::string("ab<think>"));
  request.reasoning_budget = 0;
  const auto prepared = echo.service.prepare(std::move(request));
  ASSERT_TRUE(prepared);
  EXPECT_FALSE(prepared->answer->starts_in_reasoning);
  EXPECT_EQ(ByteTokenizer().decode(prepared->prompt, true), "ab<think>\n</think>\n\n");
  EXPECT_EQ(static_cast<int>(prepared->prompt.size()) + prepared->stop.max_tokens, 512);
}

}  // namespace
}  // namespace skiff::service
