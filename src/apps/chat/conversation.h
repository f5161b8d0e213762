// apps/chat/conversation.h -- the messages so far and the edits that a person may make, as a value
// without terminal, model or clock.
#pragma once
#include <optional>
#include <string>

#include "base/result.h"
#include "text/chat/chat_template.h"

namespace skiff::apps {

// Messages are those of Conversation: an optional system message first, then exchanges. An exchange
// begins with a user message and goes on to the next one.
class ChatConversation {
 public:
  const text::Conversation& value() const { return value_; }
  size_t num_messages() const { return value_.messages.size(); }
  size_t num_exchanges() const;
  bool awaits_answer() const;  // the last message is not the assistant's

  std::string system() const;              // empty: none
  void set_system(std::string_view text);  // empty: removes it
  void ask(std::string_view text);         // appends a user message; invalid UTF-8 becomes U+FFFD
  void answer(std::string_view text);      // the assistant's message
  void reset();                            // forgets all but the system message
  std::optional<std::string>
  undo();              // drops the last exchange and returns its question, if there was one
  bool drop_answer();  // drops what follows the last question; false: nothing does
  bool drop_oldest();  // false: there is at most one exchange

  // One line, {"messages": [...], ...}: what read_conversation() and `predict --data-file` read.
  std::string to_json() const;
  // Formats the conversation for people; the result cannot be loaded again.
  std::string to_markdown(std::string_view title) const;
  // Returns kInvalid unless messages is a list of objects with a role each.
  static Result<ChatConversation> from(text::Conversation value);

 private:
  size_t first_exchange() const;  // index of the first message that is not the system's
  size_t last_question() const;   // index; num_messages() if there is none
  text::Conversation value_;
};

}  // namespace skiff::apps
