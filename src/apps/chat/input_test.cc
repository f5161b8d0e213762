#include "apps/chat/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/chat/commands.h"
#include "apps/chat/settings.h"

namespace skiff::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Messages as text; literal ones in brackets.
std::vector<std::string> messages(const std::vector<std::string>& lines) {
  ChatInputReader reader;
  std::vector<std::string> all;
  const auto keep = [&](const std::optional<ChatInput>& input) {
    if (input) all.push_back(input->literal ? "[" + input->text + "]" : input->text);
  };
  for (const std::string& line : lines) keep(reader.feed(line));
  keep(reader.finish());
  return all;
}

TEST(ChatInput, ALineIsAMessage) {
  EXPECT_THAT(messages({"one", "", "two\r"}), ElementsAre("one", "", "two"));
}

TEST(ChatInput, ABackslashGoesOn) {
  EXPECT_THAT(messages({"one\\", "two\\", "three", "four"}),
              ElementsAre("[one\ntwo\nthree]", "four"));
  EXPECT_THAT(messages({"one\\"}), ElementsAre("[one]"));  // the input ends
}

TEST(ChatInput, ABlockKeepsItsLines) {
  EXPECT_THAT(messages({"\"\"\"", "/reset", "", "a\\", " \"\"\" ", "next"}),
              ElementsAre("[/reset\n\na\\]", "next"));
  EXPECT_THAT(messages({"\"\"\"", "one"}), ElementsAre("[one]"));
  EXPECT_THAT(messages({"\"\"\"", "\"\"\""}), ElementsAre("[]"));
  EXPECT_THAT(messages({"\"\"\" x"}), ElementsAre("\"\"\" x"));
}

TEST(ChatInput, PastedLinesAreNoCommand) {
  EXPECT_THAT(messages({"/reset\nnow"}), ElementsAre("[/reset\nnow]"));
}

TEST(ChatInput, ClearForgets) {
  ChatInputReader reader;
  EXPECT_FALSE(reader.feed("one\\"));
  EXPECT_TRUE(reader.continues());
  reader.clear();
  EXPECT_FALSE(reader.continues());
  EXPECT_EQ(reader.feed("two")->text, "two");
}

TEST(ChatCommands, AreReadWithTheirArgument) {
  const auto command = parse_chat_command("/save  a file.json ");
  ASSERT_TRUE(command);
  EXPECT_EQ(command->verb, ChatVerb::kSave);
  EXPECT_EQ(command->argument, "a file.json");
  EXPECT_EQ(parse_chat_command("/quit")->verb, ChatVerb::kExit);
}

TEST(ChatCommands, MistakesSayWhatToDo) {
  EXPECT_THAT(parse_chat_command("/rest").error().what, HasSubstr("did you mean /reset?"));
  EXPECT_THAT(parse_chat_command("/xyzzy").error().what, HasSubstr("/help"));
  EXPECT_THAT(parse_chat_command("/save").error().what, HasSubstr("/save needs FILE"));
  EXPECT_THAT(parse_chat_command("/undo 2").error().what, HasSubstr("takes nothing"));
}

TEST(ChatCommands, TwoSlashesAreNoCommand) {
  EXPECT_TRUE(is_chat_command("/help"));
  EXPECT_FALSE(is_chat_command("//help"));
  EXPECT_FALSE(is_chat_command("help"));
}

TEST(ChatCommands, CompletionNeedsOneCandidate) {
  EXPECT_EQ(chat_completion("/he"), "lp ");
  EXPECT_EQ(chat_completion("/s"), "");
  EXPECT_EQ(chat_completion("/"), "");
  EXPECT_EQ(chat_completion("he"), "");
  EXPECT_EQ(chat_completion("/set"), " ");
}

ChatSettings settings(std::vector<std::string> words = {},
                      const model::GenerationDefaults& recommended = {}) {
  return ChatSettings(Args(kChat, words), recommended);
}

TEST(ChatSettings, AFlagWinsOverTheModelsRecommendation) {
  model::GenerationDefaults model;
  model.temperature = 0.7f;
  model.top_k = 20;
  model.min_p = 0.25f;
  model.max_new_tokens = 33;
  const ChatSettings chat = settings({"--temperature", "0.2"}, model);
  service::Request request;
  chat.apply(request, 0);
  EXPECT_FLOAT_EQ(request.params.temperature, 0.2f);
  EXPECT_EQ(request.params.top_k, 20);
  EXPECT_FLOAT_EQ(request.params.min_p, 0.25f);
  EXPECT_EQ(request.stop.max_tokens, 33);
  EXPECT_FALSE(request.seed_given);
  model.do_sample = false;
  EXPECT_EQ(settings({}, model).temperature(), 0);
}

TEST(ChatSettings, ValuesAreCheckedAsFlagsAre) {
  ChatSettings chat = settings();
  EXPECT_TRUE(chat.set("top_p", "0.5"));
  EXPECT_TRUE(chat.set("max-tokens", "12"));
  EXPECT_THAT(chat.set("temperature", "hot").error().what, HasSubstr("temperature"));
  EXPECT_THAT(chat.set("top_p", "2").error().what, HasSubstr("[0, 1]"));
  EXPECT_THAT(chat.set("temprature", "1").error().what, HasSubstr("did you mean temperature?"));
  EXPECT_THAT(chat.set("threads", "1").error().what, HasSubstr("no setting threads"));
  service::Request request;
  chat.apply(request, 0);
  EXPECT_FLOAT_EQ(request.params.top_p, 0.5f);
  EXPECT_EQ(request.stop.max_tokens, 12);
  EXPECT_THAT(chat.table(), HasSubstr("max_tokens           12\n"));
}

TEST(ChatSettings, EachAttemptDrawsWithTheNextSeed) {
  ChatSettings chat = settings();
  ASSERT_TRUE(chat.set("seed", "5"));
  service::Request request;
  chat.apply(request, 2);
  EXPECT_TRUE(request.seed_given);
  EXPECT_EQ(request.params.seed, 7u);
  ASSERT_TRUE(chat.set("seed", "default"));
  EXPECT_EQ(*chat.show("seed"), "  seed                 random\n");
  ASSERT_TRUE(chat.set("seed", "random"));
  chat.apply(request, 0);
  EXPECT_FALSE(request.seed_given);
}

TEST(ChatSettings, ABadRecommendationIsRefusedAtTheStart) {
  model::GenerationDefaults model;
  model.temperature = 1000;
  EXPECT_THROW(settings({}, model), UsageError);
}

}  // namespace
}  // namespace skiff::apps
