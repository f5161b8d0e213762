#include "serve/service/tool_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "serve/service/thinking.h"

namespace skiff::service {
namespace {

using Mode = ToolChoice::Mode;

struct Applied {
  text::Conversation conversation;
  Request request;
  std::optional<Error> error;
};

Applied applied(const ToolChoice& choice, const char* tools = R"([
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g"}}])") {
  Applied out;
  out.conversation.tools = OrderedJson::parse(tools);
  out.error = apply_tool_choice(choice, out.conversation, out.request);
  return out;
}

TEST(ToolChoice, ShowsTheModelWhatItMayCall) {
  const Applied all = applied({});
  EXPECT_TRUE(all.request.split_calls && all.conversation.tools.size() == 2 && !all.error);
  const Applied one = applied({.mode = Mode::kAuto, .only = {"g"}});
  EXPECT_EQ(one.conversation.tools.size(), 1u);
  EXPECT_EQ(one.conversation.tools[0]["function"]["name"], "g");
  const Applied none = applied({.mode = Mode::kNone});
  EXPECT_TRUE(none.conversation.tools.is_null() && !none.request.split_calls);
  EXPECT_FALSE(applied({}, "null").request.split_calls);
}

TEST(ToolChoice, OnlyRequiredCallsMustBeMade) {
  EXPECT_TRUE(applied({.mode = Mode::kRequired}).request.must_call);
  const Applied one = applied({.mode = Mode::kRequired, .only = {"f"}});
  EXPECT_TRUE(one.request.must_call && !one.error && one.conversation.tools.size() == 1);
  EXPECT_FALSE(applied({}).request.must_call);
  EXPECT_FALSE(applied({.mode = Mode::kNone}).request.must_call);
}

TEST(ToolChoice, WhatCannotBeIsRefused) {
  EXPECT_EQ(applied({.mode = Mode::kRequired}, "null").error->code, Code::kInvalid);
  EXPECT_EQ(applied({.mode = Mode::kAuto, .only = {"h"}}).error->code, Code::kInvalid);
}

TEST(ToolChoice, ManyNamesKeepTheOrderOfTheTools) {
  OrderedJson tools = OrderedJson::array();
  ToolChoice choice{.mode = Mode::kRequired};
  for (int i = 0; i < 1024; ++i) {
    const std::string name = fmt::format("f{}", i);
    tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
    if (i % 2) choice.only.insert(choice.only.begin(), name);
  }
  const Applied half = applied(choice, tools.dump().c_str());
  ASSERT_FALSE(half.error);
  ASSERT_EQ(half.conversation.tools.size(), 512u);
  EXPECT_EQ(half.conversation.tools[0]["function"]["name"], "f1");
  EXPECT_EQ(half.conversation.tools[511]["function"]["name"], "f1023");
}

TEST(Thinking, EveryNameSaysTheSame) {
  for (const char* said : {R"({"enable_thinking": true})", R"({"thinking": true})",
                           R"({"options": {"thinking_mode": "open"}})", "{}"}) {
    OrderedJson kwargs = OrderedJson::parse(said);
    // A request's field counts only where the template's variables say nothing.
    set_thinking(kwargs, kwargs.empty());
    EXPECT_EQ(kwargs["enable_thinking"], true) << said;
    EXPECT_EQ(kwargs["thinking"], true) << said;
    EXPECT_EQ(kwargs["options"]["thinking_mode"], "open") << said;
  }
  OrderedJson silent = OrderedJson::object();
  set_thinking(silent, std::nullopt);
  EXPECT_TRUE(silent.empty());
  EXPECT_EQ(thinking_of_effort("none"), false);
  EXPECT_EQ(thinking_of_effort("high"), true);
  EXPECT_EQ(thinking_of_effort("much"), std::nullopt);
}

}  // namespace
}  // namespace skiff::service
