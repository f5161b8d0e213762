// Tool calls of earlier answers, as templates of different kinds read them.
#include "text/chat/history_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <filesystem>
#include <fstream>

#include "text/chat/chat_template.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The second turn of a conversation with a tool, as the server hands it to a template.
Conversation second_turn(const char* content = "") {
  Conversation c;
  c.messages = OrderedJson::parse(R"([
      {"role": "user", "content": "How warm is it in Ulm?"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "a1b2c3d4e", "type": "function",
       "function": {"name": "warmth", "arguments": {"city": "Ulm", "days": 3}}}]},
      {"role": "tool", "tool_call_id": "a1b2c3d4e", "name": "warmth", "content": "9 degrees"}])");
  c.messages[1]["content"] = content;
  c.tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "warmth", "description": "Tells the weather.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string",
           "description": "Where."}}}}}])");
  return c;
}

std::string rendered(const std::string& text, const Conversation& c) {
  const auto made = make_chat_template(text, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!made) return "ERROR " + made.error().what;
  const auto prompt = (*made)->render(c);
  return prompt ? *prompt : "ERROR " + prompt.error().what;
}

// A template with `print` for each call of a message.
std::string calls(const std::string& print) {
  return "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ " + print +
         " }}{% endfor %}{% endfor %}";
}

constexpr const char* kJson = R"(call {"city": "Ulm", "days": 3})";

TEST(HistoryForm, ArgumentsAreTextWhereTheTemplateJoinsThem) {
  const Conversation c = second_turn();
  EXPECT_EQ(rendered(calls("'call ' + c.function.arguments"), c), kJson);
  EXPECT_EQ(rendered(calls("'call ' ~ c.function.arguments"), c), kJson);
  EXPECT_EQ(rendered(calls("'call ' + c.function.arguments | tojson"), c), kJson);
  EXPECT_EQ(rendered(calls("c.function.arguments.items() | list"), c),
            "[('city', 'Ulm'), ('days', 3)]");
  EXPECT_EQ(rendered(calls("'call ' ~ (c.function.arguments if c.function.arguments is string "
                           "else c.function.arguments | tojson)"),
                     c),
            kJson);
}

TEST(HistoryForm, ATemplateOfTheRequestIsTriedToo) {
  const auto made = make_chat_template("{{ 1 }}", Json::object());
  const auto prompt = (*made)->render_with(calls("'call ' + c.function.arguments"), second_turn());
  ASSERT_TRUE(prompt) << prompt.error().what;
  EXPECT_EQ(*prompt, kJson);
}

TEST(HistoryForm, ContentIsNoneWhereOnlyThatShowsCalls) {
  const std::string strict =
      "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
      "{{ 'call ' + m.tool_calls[0].function.arguments }}"
      "{% else %}({{ m.content }}){% endif %}{% endfor %}";
  EXPECT_EQ(rendered(strict, second_turn()),
            std::string("(How warm is it in Ulm?)") + kJson + "(9 degrees)");
  EXPECT_THAT(rendered(strict, second_turn("I look.")), HasSubstr("(I look.)"));
}

TEST(HistoryForm, WhatNoFormMendsStaysAsItIs) {
  EXPECT_EQ(rendered("{{ raise_exception('no ' ~ 'arguments') }}", second_turn()),
            "ERROR chat template, line 1: no arguments");
  EXPECT_EQ(rendered("{{ messages[1].tool_calls[0].function.arguments.city }}", second_turn()),
            "Ulm");
  const std::string endless =
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}arguments";
  EXPECT_TRUE(make_chat_template(endless, Json::object()));
}

// Calls of a history with arguments of about a thousand steps each.
OrderedJson long_history(int count) {
  const OrderedJson call = {
      {"type", "function"},
      {"function", {{"name", "f"}, {"arguments", {{"list", std::vector<int>(300, 7)}}}}}};
  OrderedJson message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {}}};
  for (int i = 0; i < count; ++i) message["tool_calls"].push_back(call);
  return OrderedJson::array({message});
}

// One budget for all of them, and for the rendering behind it.
TEST(HistoryForm, WritingArgumentsIsCharged) {
  jinja::Limits limits;
  limits.steps = 20'000;
  const HistoryForm text{.text_arguments = true};
  jinja::Budget enough(limits), spent(limits);
  const auto formed = in_history_form(long_history(10), text, enough);
  ASSERT_TRUE(formed);
  EXPECT_THAT((**formed)[0]["tool_calls"][9]["function"]["arguments"].get<std::string>(),
              testing::StartsWith(R"({"list": [7, 7, )"));
  const auto refused = in_history_form(long_history(1000), text, spent);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("more than 20000 steps"));
  const auto loop = jinja::Template::parse("{% for i in range(3000) %}{% endfor %}done");
  const std::vector<jinja::Template::Variable> none;
  const jinja::Clock clock = [] { return std::time_t{0}; };
  EXPECT_TRUE(loop->render(none, clock, limits));
  EXPECT_FALSE(loop->render(none, clock, enough));
}

// Templates that show no call of a history, whatever its form, or cannot be rendered here. With
// firefunction, Kimi's and llama.cpp's, jinja2 in Hugging Face's sandbox fails, too.
bool shows_no_calls(const std::string& name) {
  for (const char* one :
       {"Phi-3.5", "gemma-2", "rwkv", "MiroThinker", "LFM2", "SmolLM3", "granite-3.3",
        "firefunction", "Kimi-K2-Instruct", "Kimi-K2-Thinking", "llama-cpp-deepseek-r1"})
    if (name.find(one) != std::string::npos) return true;
  return false;
}

// Without the call, the question alone names the city.
void check_prompt(const std::string& name, const std::string& prompt) {
  EXPECT_FALSE(prompt.starts_with("ERROR")) << name << ": " << prompt;
  for (const char* none :
       {">None", "]None", "\nNone", " None<", ">null", "\nnull", R"(\"Ulm)", "'city': 'Ulm'"})
    EXPECT_THAT(prompt, Not(HasSubstr(none))) << name;
  EXPECT_NE(prompt.rfind("Ulm"), prompt.find("Ulm")) << name << " drops the call: " << prompt;
}

TEST(HistoryForm, RealTemplatesShowTheCall) {
  const fs::path folder = fs::path(SKIFF_SHARED_DIR) / "data/chat_templates/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << "no chat templates in " SKIFF_SHARED_DIR;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".jinja" || shows_no_calls(name)) continue;
    check_prompt(name, rendered(read_text(entry.path()), second_turn()));
    ++count;
  }
  EXPECT_GE(count, 30);
}

}  // namespace
}  // namespace skiff::text
