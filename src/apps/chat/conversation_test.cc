#include "apps/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

using testing::HasSubstr;

ChatConversation two_exchanges() {
  ChatConversation chat;
  chat.set_system("Be brief.");
  chat.ask("one?");
  chat.answer("1");
  chat.ask("two?");
  chat.answer("2");
  return chat;
}

std::string roles(const ChatConversation& chat) {
  std::string out;
  for (const auto& message : chat.value().messages) out += message.at("role").get<std::string>()[0];
  return out;
}

TEST(ChatConversation, SystemMessageIsReplacedAndRemoved) {
  ChatConversation chat = two_exchanges();
  chat.set_system("Be long.");
  EXPECT_EQ(chat.system(), "Be long.");
  EXPECT_EQ(roles(chat), "suaua");
  chat.set_system("");
  EXPECT_EQ(roles(chat), "uaua");
  EXPECT_EQ(chat.system(), "");
}

TEST(ChatConversation, UndoDropsQuestionAndAnswer) {
  ChatConversation chat = two_exchanges();
  EXPECT_EQ(chat.undo(), "two?");
  EXPECT_EQ(roles(chat), "sua");
  EXPECT_EQ(chat.undo(), "one?");
  EXPECT_EQ(chat.undo(), std::nullopt);
  EXPECT_EQ(roles(chat), "s");
}

TEST(ChatConversation, DropAnswerGoesBackToTheQuestion) {
  ChatConversation chat = two_exchanges();
  EXPECT_FALSE(chat.awaits_answer());
  EXPECT_TRUE(chat.drop_answer());
  EXPECT_TRUE(chat.awaits_answer());
  EXPECT_FALSE(chat.drop_answer());
  EXPECT_EQ(roles(chat), "suau");
}

TEST(ChatConversation, ASystemMessageAloneAwaitsNothing) {
  ChatConversation chat;
  EXPECT_FALSE(chat.awaits_answer());
  chat.set_system("Be brief.");
  EXPECT_FALSE(chat.awaits_answer());
}

TEST(ChatConversation, TheOldestExchangeGoesButNeverTheLast) {
  ChatConversation chat = two_exchanges();
  EXPECT_TRUE(chat.drop_oldest());
  EXPECT_EQ(roles(chat), "sua");
  EXPECT_EQ(chat.value().messages[1].at("content"), "two?");
  EXPECT_FALSE(chat.drop_oldest());
  EXPECT_EQ(roles(chat), "sua");
}

TEST(ChatConversation, ResetKeepsTheSystemMessage) {
  ChatConversation chat = two_exchanges();
  chat.reset();
  EXPECT_EQ(roles(chat), "s");
  chat.set_system("");
  chat.reset();
  EXPECT_EQ(chat.num_messages(), 0u);
}

TEST(ChatConversation, InvalidUtf8IsReplaced) {
  ChatConversation chat;
  chat.ask("a\xff");
  EXPECT_EQ(chat.value().messages[0].at("content"), "a\xEF\xBF\xBD");
}

TEST(ChatConversation, JsonIsOneLineAndComesBack) {
  text::Conversation value = two_exchanges().value();
  value.tools = OrderedJson::array({{{"type", "function"}}});
  value.kwargs["enable_thinking"] = true;
  auto chat = ChatConversation::from(value);
  ASSERT_TRUE(chat);
  const std::string json = chat->to_json();
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  const auto parsed = parse_ordered_json(json);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->at("messages"), value.messages);
  EXPECT_EQ(parsed->at("tools"), value.tools);
  EXPECT_EQ(parsed->at("enable_thinking"), true);
}

TEST(ChatConversation, MarkdownNamesWhoSpeaks) {
  EXPECT_THAT(two_exchanges().to_markdown("A title"),
              HasSubstr("# A title\n\n## system\n\nBe brief.\n\n## user\n\none?\n"));
}

TEST(ChatConversation, WhatIsNoConversationIsRefused) {
  for (const char* text :
       {"5", "{}", "[5]", "[{}]", R"([{"role": 5}])", R"([{"role": "user"}, "x"])"}) {
    text::Conversation value;
    value.messages = *parse_ordered_json(text);
    const auto chat = ChatConversation::from(value);
    ASSERT_FALSE(chat) << text;
    EXPECT_EQ(chat.error().field, "messages");
  }
}

TEST(ChatConversation, ContentThatIsNoTextIsShownAsJson) {
  text::Conversation value;
  value.messages = *parse_ordered_json(
      R"([{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":null},
          {"role":"tool"}])");
  auto chat = ChatConversation::from(value);
  ASSERT_TRUE(chat);
  EXPECT_THAT(chat->to_markdown("t"), HasSubstr(R"([{"type":"text","text":"hi"}])"));
  EXPECT_TRUE(chat->awaits_answer());  // a tool's result
  EXPECT_TRUE(chat->undo());
}

}  // namespace
}  // namespace skiff::apps
