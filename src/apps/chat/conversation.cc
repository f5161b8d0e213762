#include "apps/chat/conversation.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace skiff::apps {
namespace {

bool has_role(const OrderedJson& message, std::string_view role) {
  return message.at("role") == role;
}

OrderedJson message_of(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", utf8_sanitized(text)}};
}

// Returns the content as text. Content from a loaded file may also be a list of parts, which is
// returned as JSON, or null, which is empty.
std::string text_of(const OrderedJson& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  return content->is_string() ? content->get<std::string>() : content->dump();
}

}  // namespace

size_t ChatConversation::first_exchange() const {
  return num_messages() > 0 && has_role(value_.messages[0], "system") ? 1 : 0;
}

size_t ChatConversation::last_question() const {
  for (size_t i = num_messages(); i > 0; --i)
    if (has_role(value_.messages[i - 1], "user")) return i - 1;
  return num_messages();
}

size_t ChatConversation::num_exchanges() const {
  size_t count = 0;
  for (const OrderedJson& message : value_.messages) count += has_role(message, "user");
  return count;
}

bool ChatConversation::awaits_answer() const {
  return num_messages() > first_exchange() && !has_role(value_.messages.back(), "assistant");
}

std::string ChatConversation::system() const {
  return first_exchange() == 1 ? text_of(value_.messages[0]) : "";
}

void ChatConversation::set_system(std::string_view text) {
  OrderedJson& messages = value_.messages;
  if (first_exchange() == 1) messages.erase(0);
  if (!text.empty()) messages.insert(messages.begin(), message_of("system", text));
}

void ChatConversation::ask(std::string_view text) {
  value_.messages.push_back(message_of("user", text));
}

void ChatConversation::answer(std::string_view text) {
  value_.messages.push_back(message_of("assistant", text));
}

void ChatConversation::reset() {
  OrderedJson& messages = value_.messages;
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(first_exchange()), messages.end());
}

std::optional<std::string> ChatConversation::undo() {
  OrderedJson& messages = value_.messages;
  const size_t last = last_question();
  if (last == num_messages()) return std::nullopt;
  std::string question = text_of(messages[last]);
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(last), messages.end());
  return question;
}

bool ChatConversation::drop_answer() {
  const size_t before = num_messages();
  while (num_messages() > 0 && has_role(value_.messages.back(), "assistant"))
    value_.messages.erase(num_messages() - 1);
  return num_messages() < before;
}

bool ChatConversation::drop_oldest() {
  OrderedJson& messages = value_.messages;
  const size_t first = first_exchange();
  for (size_t next = first + 1; next < num_messages(); ++next) {
    if (!has_role(messages[next], "user")) continue;
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(first),
                   messages.begin() + static_cast<std::ptrdiff_t>(next));
    return true;
  }
  return false;
}

std::string ChatConversation::to_json() const {
  OrderedJson file{{"messages", value_.messages}};
  if (!value_.tools.is_null()) file["tools"] = value_.tools;
  for (const auto& [key, value] : value_.kwargs.items()) file[key] = value;
  return file.dump() + "\n";
}

std::string ChatConversation::to_markdown(std::string_view title) const {
  std::string out = fmt::format("# {}\n", title);
  for (const OrderedJson& message : value_.messages)
    out += fmt::format("\n## {}\n\n{}\n", message.at("role").get<std::string>(), text_of(message));
  return out;
}

Result<ChatConversation> ChatConversation::from(text::Conversation value) {
  const auto invalid = [](std::string what) {
    return Error{Code::kInvalid, std::move(what), "messages"};
  };
  if (!value.messages.is_array()) return invalid("\"messages\" is not a list");
  for (size_t i = 0; i < value.messages.size(); ++i) {
    const OrderedJson& message = value.messages[i];
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string())
      return invalid(fmt::format("message {} has no \"role\"", i + 1));
  }
  ChatConversation conversation;
  conversation.value_ = std::move(value);
  return conversation;
}

}  // namespace skiff::apps
