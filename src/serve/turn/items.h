// serve/turn/items.h -- reading the items of a request: messages, and the blocks that they consist
// of.
#pragma once
#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/result.h"

namespace skiff::turn {

inline Error invalid(std::string field, std::string what) {
  return {Code::kInvalid, std::move(what), std::move(field)};
}
inline Error unsupported(std::string field, std::string what) {
  return {Code::kUnsupported, std::move(what), std::move(field)};
}

// Bound on the calls of one message: each result is looked for among all of them, and a body has
// room for hundreds of thousands of both.
constexpr size_t kMaxCalls = 1024;

inline Error too_many_calls(const std::string& place) {
  return invalid("messages", place + " has more than " + std::to_string(kMaxCalls) + " calls");
}

// Returns a member that is there and not null, else null.
inline const OrderedJson* member(const OrderedJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Returns the item's type; "" if it has none.
inline std::string type_of(const OrderedJson& item) {
  const OrderedJson* type = member(item, "type");
  return type && type->is_string() ? type->get<std::string>() : std::string();
}

// Returns whether a text, or one of a list of parts, has more than blanks.
inline bool has_words(const OrderedJson* content) {
  if (!content) return false;
  if (content->is_string())
    return content->get_ref<const std::string&>().find_first_not_of(" \t\r\n") != std::string::npos;
  return content->is_array() && std::ranges::any_of(*content, [](const OrderedJson& part) {
           return type_of(part) == "text" && has_words(member(part, "text"));
         });
}

// In these protocols words of the assistant that end a conversation begin the reply. The client
// may say otherwise with the fields of a chat.
inline void continue_last_message(OrderedJson& chat) {
  const OrderedJson* messages = member(chat, "messages");
  if (!messages || messages->empty() || chat.contains("continue_final_message") ||
      chat.contains("add_generation_prompt"))
    return;
  const OrderedJson& last = messages->back();
  if (last["role"] == "assistant" && !last.contains("tool_calls") &&
      has_words(member(last, "content")))
    chat["continue_final_message"] = true;
}

}  // namespace skiff::turn
