// serve/openai/chat_parts.h -- the parts of an answer (reasoning, content, tool calls) as members
// of a chat message and of its deltas.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "serve/openai/params.h"
#include "serve/service/protocol_config.h"
#include "text/answer/answer_event.h"

namespace skiff::openai {

class ChatParts {
 public:
  // Borrows both.
  ChatParts(const OpenAiCall& call, const service::ProtocolConfig& config)
      : call_(call), config_(config) {}

  // Returns the members of the deltas for these events, one text for each delta: reasoning,
  // content, the head of a call, and pieces of its arguments.
  std::vector<std::string> deltas(const answer::AnswerEvents& events);
  // Writes the members of a whole message. A broken call is no call: its text is content.
  void write_message(const answer::AnswerEvents& events, JsonWriter& json);
  // Returns whether the events so far have a call that is not broken.
  bool has_calls() const { return calls_ > 0; }

 private:
  std::string delta(const answer::AnswerEvent& event) const;
  std::vector<std::string_view> reasoning_fields() const;

  const OpenAiCall& call_;
  const service::ProtocolConfig& config_;
  int calls_ = 0;
};

}  // namespace skiff::openai
