#include "text/chat/chat_template.h"

#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <stdlib.h>
#include <time.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

namespace skiff::text {
namespace {

namespace fs = std::filesystem;

OrderedJson read_ordered(const fs::path& path) {
  std::ifstream in(path);
  return OrderedJson::parse(in);
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/skiff_template_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

Conversation hello() {
  Conversation c;
  c.messages = OrderedJson::parse(R"([{"role": "user", "content": "Hi"}])");
  return c;
}

std::string text_of(const Result<std::unique_ptr<ChatTemplate>>& made, const Conversation& c) {
  if (!made) return fmt::format("ERROR {}", made.error().what);
  auto text = (*made)->render(c);
  return text ? *text : fmt::format("ERROR {}", text.error().what);
}

TEST(ChatTemplate, ReadsTokenizerConfig) {
  const Folder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
                   "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}"})");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), hello()), "<s>Hi</s>False");
}

TEST(ChatTemplate, NamedTemplatesDifferWithTools) {
  const Folder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain {{ tools is none }}"},
      {"name": "tool_use", "template": "{{ tools | tojson }}"}]})");
  Conversation c = hello();
  const auto made = load_chat_template(folder.path());
  EXPECT_EQ(text_of(made, c), "plain True");
  c.tools = OrderedJson::parse(R"([{"type": "function", "a": 1}])");
  EXPECT_EQ(text_of(made, c), R"([{"type": "function", "a": 1}])");
}

TEST(ChatTemplate, OrderOfSources) {
  const Folder folder;
  EXPECT_EQ(load_chat_template(folder.path()).error().code, Code::kNotFound);
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), hello()), "json");
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), hello()), "config");
  folder.write("chat_template.jinja", "own file\n");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), hello()), "own file");
  folder.write("other.txt", "{{ 1 + 1 }}");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), folder.path("other.txt")), hello()), "2");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "{{ 1 + 2 }}"), hello()), "3");
  EXPECT_EQ(load_chat_template(folder.path(), "no such file").error().code, Code::kNotFound);
}

TEST(ChatTemplate, BrokenFilesAreErrorsNotCrashes) {
  const Folder folder;
  folder.write("tokenizer_config.json", "{\"chat_template\": ");
  EXPECT_EQ(load_chat_template(folder.path()).error().code, Code::kInvalid);
  folder.write("tokenizer_config.json", "[]");
  EXPECT_EQ(load_chat_template(folder.path()).error().code, Code::kInvalid);
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": 5}]})");
  EXPECT_EQ(load_chat_template(folder.path()).error().code, Code::kInvalid);
  folder.write("tokenizer_config.json", R"({"chat_template": "a\n{{ x"})");
  const auto made = load_chat_template(folder.path());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().what.find("tokenizer_config.json: line 2"), std::string::npos)
      << made.error().what;
}

TEST(ChatTemplate, KwargsAndPrompt) {
  const auto made = make_chat_template(
      "{{ bos_token }}{% if thinking %}T{% endif %}{% if add_generation_prompt %}G{% endif %}",
      {{"bos_token", "<s>"}});
  Conversation c = hello();
  EXPECT_EQ(text_of(made, c), "<s>G");
  c.kwargs["thinking"] = true;
  c.add_generation_prompt = false;
  EXPECT_EQ(text_of(made, c), "<s>T");
}

TEST(ChatTemplate, DevelopersAreTheSystemToATemplateThatDoesNotKnowThem) {
  const std::string loop = "{% for m in messages %}{% if m.role in ['system', 'user'";
  const std::string rest = "] %}{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}";
  Conversation c;
  c.messages = OrderedJson::parse(R"([{"role": "developer", "content": "Be short"},
                                      {"role": "user", "content": "Hi"}])");
  EXPECT_EQ(text_of(make_chat_template(loop + rest, Json::object()), c),
            "system:Be short;user:Hi;");
  EXPECT_EQ(text_of(make_chat_template(loop + ", 'developer'" + rest, Json::object()), c),
            "developer:Be short;user:Hi;");
}

TEST(ChatTemplate, RefusalIsTheCallersMistake) {
  const auto made =
      make_chat_template("{{ raise_exception('roles must alternate') }}", Json::object());
  ASSERT_TRUE(made);
  const auto text = (*made)->render(hello());
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kInvalid);
  EXPECT_EQ(text.error().what, "chat template, line 1: roles must alternate");
}

Conversation talk(const char* messages, bool prompt = true) {
  Conversation c;
  c.messages = OrderedJson::parse(messages);
  c.add_generation_prompt = prompt;
  return c;
}

TEST(ChatTemplate, NamesAreChosenWithoutTools) {
  const Folder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"},
      {"name": "rag", "template": "{{ bos_token }}rag"}, {"name": "broken", "template": "{% if %}"}]})");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), hello()), "plain");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "rag"), hello()), "<s>rag");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "tool_use"), hello()), "tools");
  EXPECT_EQ(load_chat_template(folder.path(), "broken").error().code, Code::kInvalid);
  Conversation c = hello();
  c.tools = OrderedJson::parse(R"([{"type": "function"}])");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), c), "tools");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "rag"), c), "<s>rag");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "own {{ 1 }}"), c), "own 1");
  const auto made = load_chat_template(folder.path());
  EXPECT_EQ(*(*made)->render_with("rag", c), "<s>rag");
  EXPECT_EQ(*(*made)->render_with("{{ bos_token }}!", c), "<s>!");
  EXPECT_FALSE((*made)->render_with("broken", c));
  EXPECT_FALSE((*made)->render_with("{{", c));
}

TEST(ChatTemplate, AFolderOfTemplates) {
  const Folder folder;
  folder.write("chat_template.jinja", "main");
  fs::create_directory(folder.path("additional_chat_templates"));
  folder.write("additional_chat_templates/tool_use.jinja", "with tools");
  folder.write("additional_chat_templates/short.jinja", "short");
  folder.write("additional_chat_templates/notes.txt", "{% if %}");
  Conversation c = hello();
  EXPECT_EQ(text_of(load_chat_template(folder.path()), c), "main");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "short"), c), "short");
  c.tools = OrderedJson::parse("[{}]");
  EXPECT_EQ(text_of(load_chat_template(folder.path()), c), "with tools");
}

TEST(ChatTemplate, SeveralWithoutDefaultMustBeChosen) {
  const Folder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "a", "template": "A"}, {"name": "b", "template": "B"}]})");
  const auto made = load_chat_template(folder.path());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().what.find("a, b"), std::string::npos) << made.error().what;
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "b"), hello()), "B");
}

TEST(ChatTemplate, AGivenTemplateNeedsNoneOfTheModel) {
  const Folder folder;
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "{{ eos_token }}"), hello()), "</s>");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": 5}]})");
  EXPECT_EQ(text_of(load_chat_template(folder.path(), "{{ 1 }}"), hello()), "1");
}

TEST(ChatTemplate, ReservedVariables) {
  EXPECT_EQ(find_reserved_variable(OrderedJson::parse(R"({"documents": [], "thinking": true})")),
            std::nullopt);
  for (const char* name : {"messages", "tools", "tokenize", "bos_token", "raise_exception"})
    EXPECT_EQ(find_reserved_variable({{"x", 1}, {name, 1}}), name);
  const auto made = make_chat_template("{{ documents }}", Json::object());
  Conversation c = hello();
  c.kwargs["documents"] = {1};
  EXPECT_EQ(text_of(made, c), "[1]");
  c.kwargs["messages"] = OrderedJson::array();
  EXPECT_EQ((*made)->render(c).error().field, "chat_template_kwargs");
}

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kTrimmed =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>\n{% endfor %}";

std::string continued(const char* text, const char* messages) {
  Conversation c = talk(messages, false);
  c.continue_final_message = true;
  return text_of(make_chat_template(text, Json::object()), c);
}

TEST(ChatTemplate, TheFinalMessageIsContinued) {
  EXPECT_EQ(continued(kTurns, R"([{"role": "user", "content": "A"},
                                  {"role": "assistant", "content": "A, B"}])"),
            "<user>A<end>\n<assistant>A, B");
  EXPECT_EQ(continued(kTurns, R"([{"role": "assistant", "content": "So "}])"), "<assistant>So ");
  EXPECT_EQ(continued(kTrimmed, R"([{"role": "assistant", "content": "So "}])"), "<assistant>So");
  EXPECT_EQ(continued(kTrimmed, R"([{"role": "assistant", "content": "\n So"}])"), "<assistant>So");
  EXPECT_EQ(continued("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}",
                      R"([{"role": "assistant", "content": [
                          {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"),
            "[a][b");
}

TEST(ChatTemplate, WhatCannotBeContinuedIsRefused) {
  for (const char* messages : {"[]", R"([{"role": "assistant", "content": null}])",
                               R"([{"role": "assistant", "content": []}])", R"(["text"])"})
    EXPECT_NE(continued("fixed", messages).find("no text to continue"), std::string::npos)
        << messages;
  EXPECT_NE(continued("fixed", R"([{"role": "assistant", "content": "gone"}])").find("keep"),
            std::string::npos);
  Conversation c = talk(R"([{"role": "assistant", "content": "a"}])", true);
  c.continue_final_message = true;
  const auto text = (*make_chat_template(kTurns, Json::object()))->render(c);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().field, "continue_final_message");
}

std::string fnv1a(const std::string& bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (const unsigned char c : bytes) h = (h ^ c) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

// Compares real models' templates with the length and hash of what Python's jinja2 renders.
class RealTemplates {
 public:
  RealTemplates()
      : data_(fs::path(SKIFF_SHARED_DIR) / "data"),
        sums_(read_ordered(SKIFF_SOURCE_DIR "/tests/text/chat_template_sums.json")) {}

  bool present() const { return fs::exists(data_ / "chat_templates"); }
  const OrderedJson& rows() const { return sums_["sums"]; }

  // Returns what is wrong; empty if nothing is.
  std::string check(const OrderedJson& row) {
    const auto made = compiled(row[0].get<std::string>());
    const bool refused = row[3].is_null();
    if (!made) return refused ? "" : "not parsed";
    const auto text = made->render(conversation(row[1].get<std::string>(), row[2].get<bool>()));
    if (!text) return refused ? "" : text.error().what;
    if (refused) return "should be refused";
    if (text->size() != row[3].get<size_t>())
      return fmt::format("{} bytes instead of {}", text->size(), row[3].get<size_t>());
    return fnv1a(*text) == row[4].get<std::string>() ? "" : "other text of the right length";
  }

 private:
  const ChatTemplate* compiled(const std::string& name) {
    if (const auto it = made_.find(name); it != made_.end()) return it->second.get();
    std::string text = read_text(data_ / name);
    if (name.ends_with(".json"))
      text = OrderedJson::parse(text)["chat_template"].get<std::string>();
    auto made = make_chat_template(text, Json::object(),
                                   [this] { return sums_["now"].get<std::time_t>(); });
    return (made_[name] = made ? std::move(*made) : nullptr).get();
  }

  Conversation conversation(const std::string& name, bool prompt) {
    OrderedJson context =
        name.starts_with("shared:")
            ? read_ordered(data_ / "chat_templates/contexts" / (name.substr(7) + ".json"))
            : sums_["contexts"][name];
    Conversation c;
    c.messages = context["messages"];
    if (context.contains("tools")) c.tools = context["tools"];
    for (const char* key : {"messages", "tools", "add_generation_prompt"}) context.erase(key);
    c.kwargs = context;
    c.add_generation_prompt = prompt;
    return c;
  }

  fs::path data_;
  OrderedJson sums_;
  std::map<std::string, std::unique_ptr<ChatTemplate>> made_;
};

TEST(ChatTemplate, RealTemplatesAgreeWithPython) {
  RealTemplates real;
  if (!real.present()) GTEST_SKIP() << "no chat templates in " SKIFF_SHARED_DIR;
  setenv("TZ", "UTC", 1);
  tzset();
  ASSERT_GE(real.rows().size(), 500u);
  for (const auto& row : real.rows()) EXPECT_EQ(real.check(row), "") << row;
}

// A hundred messages take a fraction of a millisecond; the bound leaves room for slow builds.
TEST(ChatTemplate, LongConversationsRenderFast) {
  const fs::path folder = fs::path(SKIFF_SHARED_DIR) / "data/chat_templates/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << "no chat templates in " SKIFF_SHARED_DIR;
  Conversation c;
  for (int i = 0; i < 100; ++i)
    c.messages.push_back({{"role", i % 2 ? "assistant" : "user"},
                          {"content",
                           "A message of about a hundred bytes, as people write them, "
                           "with a question at its end, perhaps?"}});
  for (const char* name :
       {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct"}) {
    const auto made = load_chat_template("/", (folder / (std::string(name) + ".jinja")).string());
    ASSERT_TRUE(made) << made.error().what;
    constexpr int kRounds = 50;
    const std::clock_t start = std::clock();
    for (int i = 0; i < kRounds; ++i) ASSERT_TRUE((*made)->render(c));
    const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kRounds;
    std::printf("%-40s 100 messages in %.3f ms\n", name, ms);
    EXPECT_LT(ms, 50);
  }
}

}  // namespace
}  // namespace skiff::text
